// SPDX-License-Identifier: Apache-2.0
#include "host/lane.h"

#include <sched.h>

#include "util/clock.h"
#include "util/futex.h"
#include "util/status.h"

namespace hvd {
namespace {

// Seconds between two looks at which cores the ranks of a crowded host are on, for each of them.
constexpr double kLookEvery = 50e-6;

// Between hosts a rank may wait for one that sends and receives, and hosts may be containers of one machine: after so
// many microseconds each turn of a wait offers the core. With 2 ranks on each of two hosts that share 2 cores 64 MiB
// take 11% less.
constexpr double kKeepUs = 5;

}  // namespace

void Lane::check() {
  if (segment_.aborted()) throw JobAborted(segment_.abort_text());
}

void Lane::begin(uint64_t seq, const std::vector<int>& local_ranks, bool light) {
  // A slot may only be overwritten when nobody reads it any more. Between two light batches of the same
  // ranks the parity alternates, and having seen all peers in the second proves they left the first.
  bool alternates = light && light_ && (seq & 1) != (seq_ & 1) && local_ranks == ranks_;
  if (!alternates && seq_) {
    uint64_t previous = seq_ << 24 | kEnd;
    for (int r : ranks_)
      if (r != me_) wait_until(r, previous);
  }
  seq_ = seq;
  next_step_ = 1;
  light_ = light;
  if (ranks_ != local_ranks) ranks_ = local_ranks;
}

void Lane::end() { publish(kEnd); }

uint32_t Lane::reserve(uint32_t n) {
  uint32_t first = next_step_;
  next_step_ += n;
  if (next_step_ >= kEnd) throw JobAborted("a tensor is too large for the staging slots; raise HOROVOD_SHM_SLOT_BYTES");
  return first;
}

void Lane::publish(uint32_t step) {
  RankState& state = segment_.rank(me_);
  segment_.note_core(me_);
  state.progress.store(seq_ << 24 | step, std::memory_order_seq_cst);
  if (state.progress_waiters.load(std::memory_order_seq_cst) != 0) futex_wake_all(low_half(state.progress));
}

void Lane::wait(int local_rank, uint32_t step) { wait_until(local_rank, seq_ << 24 | step); }

void Lane::wait_all(uint32_t step) {
  for (int r : ranks_)
    if (r != me_) wait_until(r, seq_ << 24 | step);
}

// Whether the two take turns on one core. If they can be parted, the one with the higher number moves.
bool Lane::shares_core(int local_rank, double now) {
  if (!segment_.on_my_core(local_rank)) return false;
  return segment_.shares_core_with(local_rank, me_, core_, now);
}

void Lane::even_out(double now) {
  if (now - looked_at_ < kLookEvery * static_cast<double>(ranks_.size())) return;
  looked_at_ = now;
  segment_.even_out(me_, core_, now);
}

void Lane::wait_until(int local_rank, uint64_t target) {
  RankState& state = segment_.rank(local_rank);
  if (state.progress.load(std::memory_order_acquire) >= target) return;
  double start = now_s();
  if (!roomy_) even_out(start);
  bool yields = !roomy_ || shares_core(local_rank, start);
  double waited_us = 0;
  while (waited_us < spin_us_) {
    for (int i = 0; i < (yields ? 1 : 32); ++i) {
      if (state.progress.load(std::memory_order_acquire) >= target) return;
      cpu_relax();
    }
    if (yields || (!alone_ && waited_us >= kKeepUs)) sched_yield();
    check();
    waited_us = (now_s() - start) * 1e6;
  }
  waiting_for_.store(local_rank, std::memory_order_relaxed);
  state.progress_waiters.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    uint64_t seen = state.progress.load(std::memory_order_seq_cst);
    if (seen >= target || segment_.aborted()) break;
    futex_wait(low_half(state.progress), static_cast<uint32_t>(seen), 0.1);
  }
  state.progress_waiters.fetch_sub(1, std::memory_order_seq_cst);
  // Who is woken is put on the core of who woke it, where the two would take turns.
  if (roomy_ && segment_.on_my_core(local_rank)) segment_.make_way(me_, core_, now_s());
  waiting_for_.store(-1, std::memory_order_relaxed);
  if (state.progress.load(std::memory_order_acquire) < target) check();
}

}  // namespace hvd
