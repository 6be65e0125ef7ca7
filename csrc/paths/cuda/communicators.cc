// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/communicators.h"

#include <unistd.h>

#include "util/clock.h"
#include "util/status.h"
#include "util/threads.h"

namespace hvd::cuda {
namespace {

constexpr double kFinalizeSeconds = 3.0;
// With a call that does not come back, before it is aborted under its feet.
constexpr double kPatienceSeconds = 1.0;

}  // namespace

Communicators::Communicators(const Nccl& nccl, std::shared_ptr<Device> device, const NcclId& id, int me, int n,
                             int count, std::function<void()> check_job)
    : nccl_(nccl), device_(std::move(device)), check_job_(std::move(check_job)) {
  InContext in(*device_);
  try {
    connect(id, me, n);
    if (nccl_.split)
      for (int i = 0; i < count; ++i) split_off(me);
    else std::swap(all_.emplace_back(), parent_);
  } catch (...) {
    abort_now();  // no destructor runs for us
    throw;
  }
}

void Communicators::connect(const NcclId& id, int me, int n) {
  NcclConfig config;
  config.blocking = 0;
  check(parent_, nccl_.init_rank(&parent_.raw, n, id, me, &config), "ncclCommInitRankConfig");
  settle(parent_, "ncclCommInitRankConfig");
}

void Communicators::split_off(int me) {
  NcclConfig config;
  config.blocking = 1;
  check(parent_, nccl_.split(parent_.raw, 0, me, &child_, &config), "ncclCommSplit");
  settle(parent_, "ncclCommSplit");
  if (!child_) throw NcclError("ncclCommSplit of NCCL " + nccl_.version_text() + " gave no communicator");
  std::lock_guard<std::mutex> lock(mutex_);
  all_.push_back({child_, {}});
}

Communicators::~Communicators() {
  if (aborter_.joinable()) aborter_.join();
  try {
    InContext in(*device_);
    // Others may still wait for bytes that a thread of a communicator sends.
    if (!at_rest_ && !device_->drained(device_->stream(0), kFinalizeSeconds)) {
      abort_now();
      return;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    for (const Communicator& one : all_) retire(one);
    retire(parent_);
  } catch (const CudaError&) {  // the process ends and the driver has gone
  }
}

void Communicators::retire(const Communicator& one) {
  if (!one.raw) return;
  NcclResult state = nccl_.finalize(one.raw);
  for (double deadline = now_s() + kFinalizeSeconds; state == kNcclInProgress && now_s() < deadline; usleep(200))
    if (nccl_.async_error(one.raw, &state) != kNcclSuccess) break;
  if (state == kNcclSuccess) nccl_.destroy(one.raw);
  else nccl_.abort(one.raw);
}

void Communicators::abort() {
  if (!aborted_.exchange(true)) aborter_ = start_thread("hvd-nccl-abort", [this] { abort_now(); });
}

// All at once: each ends its own kernels and then gives memory back, which waits for all kernels on the device.
void Communicators::abort_now() {
  std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
  for (double until = now_s() + kPatienceSeconds; !lock.try_lock() && now_s() < until;) usleep(1000);
  std::vector<std::thread> aborts;
  auto end = [&](Communicator& one) {
    if (NcclComm raw = std::exchange(one.raw, nullptr))
      aborts.push_back(start_thread("hvd-nccl-abort", [this, raw] { nccl_.abort(raw); }));
  };
  for (Communicator& one : all_) end(one);
  end(parent_);
  for (std::thread& thread : aborts) thread.join();
}

void Communicators::check(const Communicator& one, NcclResult result, const char* call) const {
  if (result == kNcclSuccess || result == kNcclInProgress) return;
  const char* last = nccl_.last_error(aborted_ ? nullptr : one.raw);
  throw NcclError(describe_nccl(nccl_, result, call, last ? last : ""));
}

void Communicators::settle(const Communicator& one, const char* call) {
  for (int turn = 0;; ++turn) {
    NcclResult state = kNcclSuccess;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!one.raw) throw JobAborted("a collective was aborted");
      check(one, nccl_.async_error(one.raw, &state), call);
      check(one, state, call);
    }
    if (state == kNcclSuccess) return;
    check_job_();
    if (turn > 100) usleep(50);
  }
}

void Communicators::together(int which, const std::function<void(Communicator&)>& body) {
  Communicator& one = all_[static_cast<size_t>(which)];
  NcclResult result = kNcclSuccess;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!one.raw) throw JobAborted("a collective was aborted");
    nccl_.group_start();
    try {
      body(one);
    } catch (...) {
      nccl_.group_end();  // a group is a state of this thread
      throw;
    }
    result = nccl_.group_end();
    check(one, result, "ncclGroupEnd");
  }
  if (result == kNcclInProgress) settle(one, "ncclGroupEnd");
}

}  // namespace hvd::cuda
