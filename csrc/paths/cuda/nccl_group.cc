// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/nccl_group.h"

#include <unistd.h>

#include <cstring>

#include "horovod/core.h"
#include "util/clock.h"
#include "util/dtype.h"
#include "util/status.h"
#include "util/threads.h"

namespace hvd::cuda {
namespace {

constexpr double kFinalizeSeconds = 3.0;
// With a call that does not come back, before it is aborted under its feet.
constexpr double kPatienceSeconds = 1.0;

int nccl_op(int dtype, int op) {
  if (dtype == HVD_BOOL) return op == HVD_SUM || op == HVD_MAX ? kNcclMax : kNcclMin;
  switch (op) {
    case HVD_MIN: return kNcclMin;
    case HVD_MAX: return kNcclMax;
    case HVD_PRODUCT: return kNcclProduct;
    default: return kNcclSum;
  }
}

// The factor as NCCL wants it: a value of the tensors' own type. False where that would round it.
bool as_scalar(int dtype, double factor, void* out) {
  auto x = static_cast<float>(factor);
  f16 half{};
  bf16 brain{};
  switch (dtype) {
    case HVD_FLOAT64: std::memcpy(out, &factor, sizeof factor); return true;
    case HVD_FLOAT32: std::memcpy(out, &x, sizeof x); return true;
    case HVD_FLOAT16:
      narrow(x, &half);
      std::memcpy(out, &half, sizeof half);
      return static_cast<double>(widen(half)) == factor;
    case HVD_BFLOAT16:
      narrow(x, &brain);
      std::memcpy(out, &brain, sizeof brain);
      return static_cast<double>(widen(brain)) == factor;
    default: return false;
  }
}

bool equal_blocks(const std::vector<size_t>& begins, const std::vector<size_t>& sizes) {
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] != sizes[0] || begins[i] != i * sizes[0]) return false;
  return true;
}

int nccl_type(int dtype) {
  switch (dtype) {
    case HVD_UINT8:
    case HVD_BOOL: return kNcclUint8;
    case HVD_INT8: return kNcclInt8;
    case HVD_INT32: return kNcclInt32;
    case HVD_UINT32: return kNcclUint32;
    case HVD_INT64: return kNcclInt64;
    case HVD_UINT64: return kNcclUint64;
    case HVD_FLOAT16: return kNcclFloat16;
    case HVD_BFLOAT16: return kNcclBfloat16;
    case HVD_FLOAT32: return kNcclFloat32;
    case HVD_FLOAT64: return kNcclFloat64;
    default: return -1;
  }
}

}  // namespace

// NCCL has no integers of 16 bits. What wraps there wraps alike in 32 bits that are cut to 16.
int NcclGroup::travels_as(int dtype) const {
  return dtype == HVD_INT16 ? HVD_INT32 : dtype == HVD_UINT16 ? HVD_UINT32 : dtype;
}

NcclGroup::NcclGroup(const Nccl& nccl, std::shared_ptr<Device> device, Converter& converter, const NcclId& id, int me,
                     int n, Stream stream, std::function<void()> check_job)
    : Group(me, n),
      nccl_(nccl),
      device_(std::move(device)),
      converter_(converter),
      check_job_(std::move(check_job)),
      stream_(stream) {
  InContext in(*device_);
  try {
    connect(id);
    if (nccl_.split) split_off();
  } catch (...) {
    abort_now();  // no destructor runs for us
    throw;
  }
}

void NcclGroup::connect(const NcclId& id) {
  NcclConfig config;
  config.blocking = 0;
  check(nccl_.init_rank(&comm_, n, id, me, &config), "ncclCommInitRankConfig");
  settle("ncclCommInitRankConfig");
}

void NcclGroup::split_off() {
  NcclConfig config;
  config.blocking = 1;
  check(nccl_.split(comm_, 0, me, &child_, &config), "ncclCommSplit");
  settle("ncclCommSplit");
  if (!child_) throw NcclError("ncclCommSplit of NCCL " + nccl_.version_text() + " gave no communicator");
  std::lock_guard<std::mutex> lock(mutex_);
  parent_ = comm_;
  comm_ = child_;
}

NcclGroup::~NcclGroup() {
  if (aborter_.joinable()) aborter_.join();
  std::lock_guard<std::mutex> lock(mutex_);
  try {
    InContext in(*device_);
    if (comm_) retire(comm_);
    if (parent_) retire(parent_);
  } catch (const CudaError&) {  // the process ends and the driver has gone
  }
}

void NcclGroup::retire(NcclComm comm) {
  // Others may still wait for bytes that a thread of this communicator sends.
  if (!at_rest_ && !device_->drained(stream_, kFinalizeSeconds)) {
    nccl_.abort(comm);
    return;
  }
  NcclResult state = nccl_.finalize(comm);
  for (double deadline = now_s() + kFinalizeSeconds; state == kNcclInProgress && now_s() < deadline; usleep(200))
    if (nccl_.async_error(comm, &state) != kNcclSuccess) break;
  if (state == kNcclSuccess) nccl_.destroy(comm);
  else nccl_.abort(comm);
}

void NcclGroup::abort() {
  if (!aborted_.exchange(true)) aborter_ = start_thread("hvd-nccl-abort", [this] { abort_now(); });
}

void NcclGroup::abort_now() {
  std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
  for (double until = now_s() + kPatienceSeconds; !lock.try_lock() && now_s() < until;) usleep(1000);
  if (comm_) nccl_.abort(comm_);
  if (parent_) nccl_.abort(parent_);
  comm_ = parent_ = nullptr;
}

void NcclGroup::check(NcclResult result, const char* call) {
  if (result == kNcclSuccess || result == kNcclInProgress) return;
  const char* last = nccl_.last_error(aborted_ ? nullptr : comm_);
  throw NcclError(describe_nccl(nccl_, result, call, last ? last : ""));
}

void NcclGroup::settle(const char* call) {
  for (int turn = 0;; ++turn) {
    NcclResult state = kNcclSuccess;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!comm_) throw JobAborted("a collective was aborted");
      check(nccl_.async_error(comm_, &state), call);
      check(state, call);
    }
    if (state == kNcclSuccess) return;
    check_job_();
    if (turn > 100) usleep(50);
  }
}

void NcclGroup::begin() {
  if (depth_++ == 0) {
    mutex_.lock();
    if (!comm_) {
      depth_ = 0;
      mutex_.unlock();
      throw JobAborted("a collective was aborted");
    }
    nccl_.group_start();
  }
}

void NcclGroup::end() {
  if (--depth_ > 0) return;
  NcclResult result = nccl_.group_end();
  std::vector<std::function<void()>> after = std::move(after_);
  after_.clear();
  try {
    check(result, "ncclGroupEnd");
  } catch (...) {
    mutex_.unlock();
    throw;
  }
  mutex_.unlock();
  if (result == kNcclInProgress) settle("ncclGroupEnd");
  for (auto& next : after) next();
}

// The calls of `body` as one group, which ends whatever happens: it is a state of this thread.
template <class Body>
void NcclGroup::grouped(const char* call, Body body) {
  begin();
  NcclResult result = kNcclSuccess;
  std::string failure;
  try {
    body([&](NcclResult one) {
      if (one != kNcclSuccess && one != kNcclInProgress && result == kNcclSuccess) result = one;
    });
    check(result, call);
  } catch (const std::exception& e) {
    failure = e.what();
  }
  if (failure.empty()) return end();
  after_.clear();
  depth_ = 0;  // also of groups around this one, which nobody ends any more
  nccl_.group_end();
  mutex_.unlock();
  throw NcclError(failure);
}

std::pair<int, bool> NcclGroup::operator_for(const Reduce& how) {
  int op = nccl_op(how.dtype, how.op);
  if (!any(how.after)) return {op, false};
  double factor = how.after.multiplier / how.after.divisor;
  char scalar[8];
  if (how.op != HVD_SUM || !as_scalar(how.dtype, factor, scalar)) return {op, true};
  auto [place, added] = scaled_sums_.try_emplace({how.dtype, factor}, 0);
  if (added)
    check(nccl_.scaled_sum(&place->second, scalar, nccl_type(how.dtype), kNcclScalarOnHost, comm_),
          "ncclRedOpCreatePreMulSum");
  return {place->second, false};
}

void NcclGroup::all_reduce(const Reduce& how, const void* in, void* out, size_t count, Stream stream) {
  if (!count) return;
  grouped("ncclAllReduce", [&](auto note) {
    auto [op, scale] = operator_for(how);
    note(nccl_.all_reduce(in, out, count, nccl_type(how.dtype), op, comm_, stream));
    if (scale)
      after_.push_back([this, how, out, count, stream] {
        converter_.run(how.dtype, how.dtype, how.after, {{out, out, count}}, stream);
      });
  });
}

void NcclGroup::reduce_scatter(const Reduce& how, const void* in, void* out, const std::vector<size_t>& begins,
                               const std::vector<size_t>& counts, Stream stream) {
  const char* bytes = static_cast<const char*>(in);
  size_t item = item_size(how.dtype);
  size_t mine = counts[static_cast<size_t>(me)];
  grouped("ncclReduceScatter", [&](auto note) {
    auto [op, scale] = operator_for(how);
    if (equal_blocks(begins, counts)) {
      if (mine) note(nccl_.reduce_scatter(in, out, mine, nccl_type(how.dtype), op, comm_, stream));
    } else {
      for (int i = 0; i < n; ++i)
        if (size_t count = counts[static_cast<size_t>(i)])
          note(nccl_.reduce(bytes + begins[static_cast<size_t>(i)] * item, i == me ? out : nullptr, count,
                            nccl_type(how.dtype), op, i, comm_, stream));
    }
    if (scale && mine)
      after_.push_back([this, how, out, mine, stream] {
        converter_.run(how.dtype, how.dtype, how.after, {{out, out, mine}}, stream);
      });
  });
}

void NcclGroup::all_gather(const void* in, char* out, const std::vector<size_t>& begins,
                           const std::vector<size_t>& bytes, Stream stream) {
  grouped("ncclAllGather", [&](auto note) {
    if (equal_blocks(begins, bytes)) {
      if (bytes[0]) note(nccl_.all_gather(in, out, bytes[0], kNcclInt8, comm_, stream));
      return;
    }
    for (int i = 0; i < n; ++i) {
      auto k = static_cast<size_t>(i);
      if (bytes[k])
        note(nccl_.broadcast(i == me ? in : out + begins[k], out + begins[k], bytes[k], kNcclInt8, i, comm_, stream));
    }
  });
}

void NcclGroup::broadcast(const void* in, void* out, size_t bytes, int root, Stream stream) {
  if (!bytes) return;
  grouped("ncclBroadcast", [&](auto note) { note(nccl_.broadcast(in, out, bytes, kNcclInt8, root, comm_, stream)); });
}

void NcclGroup::all_to_all(const char* in, char* out, const std::vector<size_t>& bytes, Stream stream) {
  auto members = static_cast<size_t>(n);
  auto my = static_cast<size_t>(me);
  grouped("ncclSend", [&](auto note) {
    for (size_t i = 0; i < members; ++i) {
      size_t to = bytes[my * members + i];
      size_t from = bytes[i * members + my];
      if (i == my) {
        if (to) HVD_CUDA(copy_async, address_of(out), address_of(in), to, stream);
      } else {
        if (to) note(nccl_.send(in, to, kNcclInt8, static_cast<int>(i), comm_, stream));
        if (from) note(nccl_.receive(out, from, kNcclInt8, static_cast<int>(i), comm_, stream));
      }
      in += to;
      out += from;
    }
  });
}

}  // namespace hvd::cuda
