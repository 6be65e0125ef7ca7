// SPDX-License-Identifier: Apache-2.0
//
// Every verb on stand-in GPUs, each way they can go, against the same verb on host memory.
#include <atomic>
#include <cmath>
#include <functional>

#include "tests/check.h"
#include "tests/paths/cuda/gpu_job.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

const std::vector<int> kDtypes = {HVD_UINT8,    HVD_INT8,    HVD_UINT16,  HVD_INT16,   HVD_INT32,
                                  HVD_INT64,    HVD_FLOAT16, HVD_FLOAT32, HVD_FLOAT64, HVD_BOOL,
                                  HVD_BFLOAT16, HVD_UINT32,  HVD_UINT64};

struct Way {
  std::string operations;
  std::vector<int> locals;
};

std::vector<Way> ways() {
  return {{"direct", {2}},  {"direct", {3}}, {"by stream", {2}}, {"by stream", {3}}, {"NCCL", {2}}, {"NCCL", {3}},
          {"NCCL", {2, 1}}, {"host", {2}},   {"host", {2, 1}},   {"auto", {4}},      {"auto", {1}}};
}

// "by stream" is direct among ranks that share a GPU without MPS; here all ranks pretend that they do.
std::unique_ptr<GpuJob> start(const Way& way) {
  const bool by_stream = way.operations == "by stream";
  standin_set_mps(!by_stream);
  standin_share_gpus(by_stream);
  return std::make_unique<GpuJob>(way.locals, by_stream ? "direct" : way.operations);
}

// What the report must say of the way that was taken.
const char* counter(const Way& way) {
  if (way.operations == "NCCL") return "\"direct_batches\": 0, \"nccl_batches\": ";
  if (way.operations == "host") return "\"nccl_batches\": 0, \"host_batches\": ";
  if (way.operations == "by stream") return "\"spins\": false";
  if (way.operations == "direct") return "\"spins\": true";
  return "";
}

// Values of a rank: small, so that half types and products stay exact.
std::vector<char> sample(int dtype, size_t count, int rank) {
  std::vector<char> bytes(count * item_size(dtype));
  std::minstd_rand random(unsigned(rank * 7919 + int(count)));
  for (size_t i = 0; i < count; ++i) {
    const int v = int(random() % 5);
    char* at = bytes.data() + i * item_size(dtype);
    auto put = [&](auto x) { std::memcpy(at, &x, sizeof x); };
    switch (dtype) {
      case HVD_BOOL: put(uint8_t(v & 1)); break;
      case HVD_UINT8: put(uint8_t(v)); break;
      case HVD_INT8: put(int8_t(v - 2)); break;
      case HVD_UINT16: put(uint16_t(v)); break;
      case HVD_INT16: put(int16_t(v - 2)); break;
      case HVD_UINT32: put(uint32_t(v)); break;
      case HVD_INT32: put(int32_t(v - 2)); break;
      case HVD_UINT64: put(uint64_t(v)); break;
      case HVD_INT64: put(int64_t(v - 2)); break;
      case HVD_FLOAT16: put(uint16_t(v == 0 ? 0 : 0x3c00 + (v << 8))); break;
      case HVD_BFLOAT16: put(uint16_t(v == 0 ? 0 : 0x3f80 + (v << 4))); break;
      case HVD_FLOAT32: put(float(v) - 2.25f); break;
      default: put(double(v) - 2.25); break;
    }
  }
  return bytes;
}

// Equal bits; NCCL multiplies by a third where the host divides by three, so its floating-point results may differ in
// the last place.
bool same(const std::vector<char>& a, const std::vector<char>& b, int dtype, bool exact) {
  if (exact || a.size() != b.size() || (dtype != HVD_FLOAT32 && dtype != HVD_FLOAT64)) return a == b;
  for (size_t i = 0; i < a.size(); i += item_size(dtype)) {
    double x = 0, y = 0;
    if (dtype == HVD_FLOAT64) {
      std::memcpy(&x, &a[i], 8);
      std::memcpy(&y, &b[i], 8);
    } else {
      float p = 0, q = 0;
      std::memcpy(&p, &a[i], 4);
      std::memcpy(&q, &b[i], 4);
      x = p;
      y = q;
    }
    if (std::abs(x - y) > 1e-6 * std::max(1.0, std::abs(y))) return false;
  }
  return true;
}

std::atomic<long> faults{0};
void expect(bool ok, const std::string& what) {
  if (ok) return;
  ++faults;
  std::cerr << "wrong: " + what + "\n";
}

// One tensor of one verb, on the GPU and on the host. `outputs` of unknown size come from the engine.
struct Trial {
  GpuJob& job;
  const Way& way;
  int rank;

  hvd_request request(int kind, const std::string& name, int dtype, const std::vector<int64_t>& shape) const {
    return job.request(rank, kind, name.c_str(), dtype, shape, nullptr, nullptr);
  }
  static size_t bytes(const hvd_request& r) {
    size_t n = item_size(r.dtype);
    for (int32_t i = 0; i < r.ndim; ++i) n *= size_t(r.shape[i]);
    return n;
  }

  // The same request over host memory; outputs as the engine shapes them.
  std::vector<char> on_host(hvd_request r, std::vector<char> input) const {
    const std::string name = std::string("host.") + r.name;
    r.name = name.c_str();
    r.device = -1;
    r.wire_dtype = 0;
    r.input = input.empty() ? nullptr : input.data();
    r.output = nullptr;
    Engine& engine = job.engine(rank);
    const int64_t handle = engine.submit(&r, 1, 0, nullptr, nullptr, nullptr);
    const Status status = engine.wait(handle, 60.0);
    expect(status.ok(), name + ": " + status.text);
    std::vector<char> output;
    if (status.ok()) {
      const Entry& e = engine.find(handle)->entries[0];
      size_t n = item_size(r.dtype);
      for (int64_t d : e.output_shape) n *= size_t(d);
      output.assign(e.output, e.output + n);
    }
    engine.release(handle);
    return output;
  }

  // On the GPU: into memory of the user's, in place, or into the engine's and from there.
  enum Where { kOwn, kInPlace, kEngine };
  std::vector<char> on_gpu(hvd_request r, const std::vector<char>& values, Where where, size_t output_bytes,
                           size_t skew = 0) const {
    User& user = job.user(rank);
    Array in(user, values, skew);
    Array out(user, std::vector<char>(output_bytes, 77), skew);
    r.input = in.data();
    r.output = where == kOwn ? out.data() : where == kInPlace ? in.data() : nullptr;
    int64_t handle = 0;
    const Status status = job.run(rank, r, &handle);
    expect(status.ok(), std::string(r.name) + ": " + status.text);
    if (!status.ok()) return {};
    if (where == kEngine) job.engine(rank).copy_output(handle, 0, out.data(), user.stream);
    std::vector<char> result = where == kInPlace ? in.read() : out.read();
    if (where != kInPlace) expect(in.read() == values, std::string(r.name) + " changed its input");
    job.engine(rank).release(handle);
    return result;
  }

  void compare(const hvd_request& r, const std::vector<char>& values, Where where, size_t skew = 0) const {
    const std::vector<char> wanted = on_host(r, values);
    const bool exact = way.operations != "NCCL" && way.operations != "auto";
    expect(same(on_gpu(r, values, where, wanted.size(), skew), wanted, r.dtype, exact),
           way.operations + " " + r.name + " of " + dtype_name(r.dtype));
  }
};

// Runs a body for every way and rank.
void everywhere(const std::function<void(const Trial&)>& body) {
  for (const Way& way : ways()) {
    const Case c(way.operations, "hosts", way.locals.size(), "ranks on the first", way.locals[0]);
    faults = 0;
    {
      auto job = start(way);
      job->each([&](int rank) { body({*job, way, rank}); });
      if (job->size() > 1) CHECK(job->engine(0).device_report().find(counter(way)) != std::string::npos);
    }
    CHECK_EQ(faults.load(), 0L);
  }
}

std::string named(const char* verb, int a, int b, size_t c) {
  return std::string(verb) + "." + std::to_string(a) + "." + std::to_string(b) + "." + std::to_string(c);
}

}  // namespace

TEST(allreduce_of_all_types_operators_and_sizes) {
  everywhere([](const Trial& t) {
    for (int dtype : kDtypes)
      for (int op : {HVD_AVERAGE, HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT}) {
        if (dtype == HVD_BOOL && op == HVD_AVERAGE) continue;
        for (size_t count : {size_t(1), size_t(100), size_t(300001)}) {
          if (count > 1000 && op != HVD_SUM && dtype != HVD_FLOAT32) continue;
          const std::vector<int64_t> shape{int64_t(count)};
          const std::string name = named("allreduce", dtype, op, count);
          hvd_request r = t.request(HVD_ALLREDUCE, name, dtype, shape);
          r.reduce_op = op;
          t.compare(r, sample(dtype, count, t.rank), count % 2 ? Trial::kInPlace : Trial::kOwn);
        }
      }
  });
}

TEST(scaled_and_skewed_allreduce) {
  everywhere([](const Trial& t) {
    const std::vector<int64_t> shape{1001};
    for (int dtype : kDtypes)
      for (size_t skew : {size_t(0), item_size(dtype)}) {
        const std::string name = named("scaled", dtype, 0, skew);
        hvd_request r = t.request(HVD_ALLREDUCE, name, dtype, shape);
        r.prescale = 2.0;
        r.postscale = 0.5;
        t.compare(r, sample(dtype, 1001, t.rank), Trial::kOwn, skew);
      }
    // A rank whose memory lies askew does not stop the others from going the straight way.
    const std::vector<int64_t> large{400000};
    const std::string name = "skewed";
    t.compare(t.request(HVD_ALLREDUCE, name, HVD_FLOAT32, large), sample(HVD_FLOAT32, 400000, t.rank), Trial::kOwn,
              t.rank == 0 ? 4 : 0);
  });
}

TEST(travels_as_half) {
  everywhere([](const Trial& t) {
    const std::vector<int64_t> shape{5000};
    for (int dtype : {HVD_FLOAT32, HVD_FLOAT64})
      for (int wire : {HVD_FLOAT16, HVD_BFLOAT16}) {
        const std::string name = named("half", dtype, wire, 0);
        hvd_request r = t.request(HVD_ALLREDUCE, name, dtype, shape);
        r.wire_dtype = wire;
        t.compare(r, sample(dtype, 5000, t.rank), Trial::kInPlace);  // quarters: exact in a half
      }
  });
}

TEST(adasum) {
  everywhere([](const Trial& t) {
    for (int dtype : {HVD_FLOAT32, HVD_FLOAT64, HVD_BFLOAT16}) {
      const std::vector<int64_t> shape{777};
      const std::string name = named("adasum", dtype, 0, 0);
      hvd_request r = t.request(HVD_ALLREDUCE, name, dtype, shape);
      r.reduce_op = HVD_ADASUM;
      const std::vector<char> values = sample(dtype, 777, t.rank);
      const std::vector<char> wanted = t.on_host(r, values);
      const std::vector<char> got = t.on_gpu(r, values, Trial::kOwn, wanted.size());
      // Dot products are added in another order than on the host.
      if (dtype != HVD_BFLOAT16) expect(same(got, wanted, dtype, false), name);
      else expect(got.size() == wanted.size(), name);
    }
  });
}

TEST(allgather_of_unequal_rows) {
  everywhere([](const Trial& t) {
    for (int dtype : {HVD_UINT8, HVD_FLOAT32})
      for (size_t each : {size_t(0), size_t(3), size_t(100003)}) {
        const std::vector<int64_t> shape{int64_t(each) * (t.rank + 1) + t.rank % 2, 3};
        const std::string name = named("allgather", dtype, 0, each);
        const hvd_request r = t.request(HVD_ALLGATHER, name, dtype, shape);
        t.compare(r, sample(dtype, size_t(shape[0]) * 3, t.rank), Trial::kEngine);
      }
    const std::vector<int64_t> equal{5, 2};
    const std::string name = "equal";
    t.compare(t.request(HVD_ALLGATHER, name, HVD_INT64, equal), sample(HVD_INT64, 10, t.rank), Trial::kEngine);
  });
}

TEST(broadcast_from_every_rank) {
  everywhere([](const Trial& t) {
    for (int root = 0; root < t.job.size(); ++root)
      for (size_t count : {size_t(1), size_t(200003)}) {
        const std::vector<int64_t> shape{int64_t(count)};
        const std::string name = named("broadcast", root, 0, count);
        hvd_request r = t.request(HVD_BROADCAST, name, HVD_INT16, shape);
        r.root = root;
        t.compare(r, sample(HVD_INT16, count, t.rank), count == 1 ? Trial::kInPlace : Trial::kOwn);
      }
  });
}

TEST(alltoall_with_splits) {
  everywhere([](const Trial& t) {
    for (size_t each : {size_t(1), size_t(20001)}) {
      std::vector<int64_t> splits;
      int64_t rows = 1;  // one row is for nobody
      for (int d = 0; d < t.job.size(); ++d) splits.push_back(int64_t(each) * ((t.rank + d) % 3));
      for (int64_t s : splits) rows += s;
      const std::vector<int64_t> shape{rows, 2};
      const std::string name = named("alltoall", 0, 0, each);
      hvd_request r = t.request(HVD_ALLTOALL, name, HVD_FLOAT32, shape);
      r.splits = splits.data();
      r.n_splits = int32_t(splits.size());
      t.compare(r, sample(HVD_FLOAT32, size_t(rows) * 2, t.rank), Trial::kEngine);
    }
  });
}

TEST(reducescatter_of_even_and_uneven_rows) {
  everywhere([](const Trial& t) {
    for (int dtype : {HVD_FLOAT32, HVD_INT16, HVD_BFLOAT16})
      for (int op : {HVD_SUM, HVD_AVERAGE})
        for (size_t rows : {size_t(1), size_t(7), size_t(12 * 4 * 3), size_t(60001)}) {
          const std::vector<int64_t> shape{int64_t(rows), 4};
          const std::string name = named("reducescatter", dtype, op, rows);
          hvd_request r = t.request(HVD_REDUCESCATTER, name, dtype, shape);
          r.reduce_op = op;
          t.compare(r, sample(dtype, rows * 4, t.rank), Trial::kEngine);
        }
  });
}
