// SPDX-License-Identifier: Apache-2.0
//
// Large tensors over several NCCL communicators, on streams that run late and in their own order: every part arrives,
// and nobody sees a result before the last one has.
#include <atomic>
#include <barrier>

#include "tests/check.h"
#include "tests/paths/cuda/gpu_job.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

constexpr size_t kPart = (512 << 10) / sizeof(float);  // elements that are worth a communicator

Settings spread(int communicators) {
  Settings settings = gpu_settings("NCCL");
  settings.num_nccl_streams = communicators;
  return settings;
}

// Element i of rank r; all sums of a few are exact.
std::vector<float> ramp(size_t count, int rank) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = float(i % 1021 + size_t(rank) * 7);
  return values;
}

// How many elements are not what `expected(i)` says.
template <class Expected>
long wrong(const std::vector<char>& bytes, Expected expected) {
  long n = 0;
  for (size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
    float value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    n += value != expected(i);
  }
  return n;
}

auto sum_of(int ranks, float factor = 1) {
  return [=](size_t i) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += float(i % 1021 + size_t(r) * 7);
    return sum * factor;
  };
}

}  // namespace

TEST(sums_of_any_size_over_any_number) {
  standin_set_delay(200);
  for (int communicators : {0, 1, 2, 3, 8})
    for (int ranks : {2, 3}) {
      const Machine machine;
      const Case c(communicators, ranks);
      GpuJob job({ranks}, spread(communicators));
      std::atomic<long> faults{0};
      job.each([&](int rank) {
        for (size_t count : {size_t(1), kPart - 1, 2 * kPart - 1, 2 * kPart, 3 * kPart + 17, 5 * kPart}) {
          Array a(job.user(rank), numbers(ramp(count, rank)));
          Array b(job.user(rank), filled(-1, count));
          const std::vector<int64_t> shape{int64_t(count)};
          const std::string name = "t" + std::to_string(count);
          hvd_request r = job.request(rank, HVD_ALLREDUCE, name.c_str(), HVD_FLOAT32, shape, a.data(), b.data());
          faults += !job.run(rank, r).ok();
          faults += wrong(b.read(), sum_of(ranks));
          r.postscale = 0.5;  // by an operator that each communicator has to make
          r.output = a.data();
          faults += !job.call(rank, r).ok();
          faults += wrong(a.read(), sum_of(ranks, 0.5));
        }
      });
      CHECK_EQ(faults.load(), 0L);
    }
}

// A group of tensors, which travel as parts of one whole, and what follows on the same memory.
TEST(one_after_the_other) {
  standin_set_delay(200);
  const Machine machine;
  Settings settings = spread(4);
  settings.fusion_threshold = 64 << 20;
  GpuJob job({2}, settings);
  std::atomic<long> faults{0};
  job.each([&](int rank) {
    std::vector<std::unique_ptr<Array>> arrays;
    const std::vector<std::vector<int64_t>> shapes{{int64_t(3 * kPart)}, {100}, {int64_t(4 * kPart + 5)}, {7}};
    for (const auto& shape : shapes)
      arrays.push_back(std::make_unique<Array>(job.user(rank), filled(1, size_t(shape[0]))));
    for (int step = 0; step < 5; ++step) {
      std::vector<hvd_request> requests;
      std::vector<std::string> names{"a", "b", "c", "d"};
      for (size_t i = 0; i < shapes.size(); ++i) {
        requests.push_back(job.request(rank, HVD_ALLREDUCE, names[i].c_str(), HVD_FLOAT32, shapes[i], arrays[i]->data(),
                                       arrays[i]->data()));
      }
      faults += !job.run(rank, requests).ok();
    }
    for (auto& array : arrays) faults += wrong(array->read(), [](size_t) { return 32.f; });
  });
  CHECK_EQ(faults.load(), 0L);
}

TEST(other_collectives) {
  standin_set_delay(200);
  const Machine machine;
  const int ranks = 3;
  GpuJob job({ranks}, spread(3));
  std::atomic<long> faults{0};
  job.each([&](int rank) {
    const size_t count = 6 * kPart;
    const std::vector<int64_t> shape{int64_t(count)};
    Array a(job.user(rank), numbers(ramp(count, rank)));
    Array b(job.user(rank), filled(-1, count));
    hvd_request r = job.request(rank, HVD_BROADCAST, "b", HVD_FLOAT32, shape, a.data(), b.data());
    r.root = 2;
    faults += !job.run(rank, r).ok();
    faults += wrong(b.read(), [](size_t i) { return float(i % 1021 + 14); });

    Array third(job.user(rank), filled(-1, count / ranks));
    r = job.request(rank, HVD_REDUCESCATTER, "r", HVD_FLOAT32, shape, a.data(), third.data());
    faults += !job.run(rank, r).ok();
    faults += wrong(third.read(), [&](size_t i) { return sum_of(ranks)(i + size_t(rank) * count / ranks); });

    Array all(job.user(rank), filled(-1, count * ranks));
    r = job.request(rank, HVD_ALLGATHER, "g", HVD_FLOAT32, shape, a.data(), all.data());
    faults += !job.run(rank, r).ok();
    faults += wrong(all.read(), [&](size_t i) { return float(i % count % 1021 + i / count * 7); });
  });
  CHECK_EQ(faults.load(), 0L);
}

// The one that fails is named like the first; the others do not go on.
TEST(an_error_of_one_is_an_error_of_all) {
  const Machine machine;
  GpuJob job({2}, spread(4));
  std::atomic<long> failed{0};
  job.each([&](int rank) {
    Array a(job.user(rank), filled(1, 4 * kPart));
    const std::vector<int64_t> shape{int64_t(4 * kPart)};
    const hvd_request r = job.request(rank, HVD_ALLREDUCE, "t", HVD_FLOAT32, shape, a.data(), a.data());
    failed += !job.run(rank, r).ok();
    a.read();
  });
  CHECK_EQ(failed.load(), 0L);
  standin_nccl_fail("ncclAllReduce", 3, "asked for");
  job.each([&](int rank) {
    Array a(job.user(rank), filled(1, 4 * kPart));
    const std::vector<int64_t> shape{int64_t(4 * kPart)};
    const hvd_request r = job.request(rank, HVD_ALLREDUCE, "u", HVD_FLOAT32, shape, a.data(), a.data());
    const Status status = job.run(rank, r);
    failed += status.text.find("asked for") != std::string::npos;
  });
  CHECK_EQ(failed.load(), 2L);
}

// Hanging kernels of every communicator leave the device when the job ends.
TEST(an_abort_ends_all_of_them) {
  const Machine machine;
  GpuJob job({2}, spread(4));
  standin_nccl_hang(1);
  std::barrier enqueued(2);
  std::atomic<long> faults{0};
  job.each([&](int rank) {
    Array a(job.user(rank), filled(1, 4 * kPart));
    const std::vector<int64_t> shape{int64_t(4 * kPart)};
    const hvd_request r = job.request(rank, HVD_ALLREDUCE, "t", HVD_FLOAT32, shape, a.data(), a.data());
    faults += !job.run(rank, r).ok();
    enqueued.arrive_and_wait();
    job.engine(rank).abort("rank 7 on mars has gone");
    auto device = cuda::Device::get(rank);
    for (int lane = 0; lane < 4; ++lane) faults += !device->drained(device->stream(lane), 10.0);
  });
  CHECK_EQ(faults.load(), 0L);
}
