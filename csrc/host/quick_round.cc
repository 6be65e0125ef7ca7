// SPDX-License-Identifier: Apache-2.0
#include "host/quick_round.h"

#include "util/futex.h"

namespace hvd {

QuickRound::Outcome QuickRound::look() const {
  State s = decode(word().load(std::memory_order_acquire));
  if (s.round != round_) return s.before_full ? Outcome::kFull : Outcome::kClosed;
  return full(s) ? Outcome::kFull : s.closed ? Outcome::kClosed : Outcome::kOpen;
}

bool QuickRound::others_are_in(uint32_t round) const {
  for (int local = 0; local < members_; ++local) {
    uint32_t in = segment_.rank(local).in_round.load(std::memory_order_seq_cst);
    if (in != 0 && in != round + 1) return true;
  }
  return false;
}

QuickRound::Outcome QuickRound::close() {
  uint64_t seen = word().load(std::memory_order_seq_cst);
  for (;;) {
    State s = decode(seen);
    if (s.round != round_ || full(s) || s.closed) return look();
    if (others_are_in(round_)) return Outcome::kOpen;
    if (!word().compare_exchange_weak(seen, seen | kClosed, std::memory_order_seq_cst)) continue;
    wake();
    return Outcome::kClosed;
  }
}

void QuickRound::close_for_others() {
  uint64_t seen = word().load(std::memory_order_acquire);
  State s = decode(seen);
  if (over(s) || others_are_in(s.round)) return;
  if (word().compare_exchange_strong(seen, seen | kClosed, std::memory_order_seq_cst)) wake();
}

void QuickRound::sleep(double seconds) {
  std::atomic<uint32_t>& sleepers = segment_.header().quick_sleepers;
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  uint64_t seen = word().load(std::memory_order_seq_cst);
  State s = decode(seen);
  if (s.round == round_ && !over(s)) futex_wait(low_half(word()), static_cast<uint32_t>(seen), seconds);
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void QuickRound::wake() {
  if (segment_.header().quick_sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(low_half(word()));
}

}  // namespace hvd
