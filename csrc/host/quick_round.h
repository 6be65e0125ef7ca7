// SPDX-License-Identifier: Apache-2.0
// Ranks of one host meet without a coordinator: each brings a small payload and the number of the tensor it is at. A
// round is full when all are there, and then all of them know it; or somebody closes it before, and then nobody in it
// takes it for full. One word in shared memory decides which:
//
//   id of the tensor: 32 | round: 15 | the round before was full: 1 | closed: 1 | ranks that are here: 15
//
// Whoever comes first after a round has ended opens the next. Being there cannot be taken back; a rank that does not
// want to wait any longer closes the round. It may do so only while no rank is still in an earlier one (`in_round` of
// each). So while a rank looks at its round the word is at most one round ahead, and one bit tells how its own ended;
// and the payload of a round, of which each rank has room for two, is not overwritten before all have read it.
//
// One thread of a rank at a time.
#pragma once

#include <cstdint>

#include "host/segment.h"

namespace hvd {

class QuickRound {
 public:
  QuickRound(Segment& segment, int me, int members) : segment_(segment), me_(me), members_(members) {}

  enum class Outcome { kOpen, kFull, kClosed };

  // Comes to the open round, or opens one; `write(room)` puts this rank's payload where the others will read it, and
  // may be called again. False: this tensor goes another way, since the others are at another one, or have closed the
  // round in which they waited for this rank.
  template <typename Write>
  bool arrive(uint32_t id, Write write);
  // How the round stands that this rank is in.
  Outcome look() const;
  // Ends the round if it is not full; kOpen: not now, a rank has to find out about an earlier one first.
  Outcome close();
  // Where this rank's payload is; the others read it.
  char* own_payload() { return segment_.quick_payload(me_, round_ & 1); }
  // What a rank brought; after kFull, until leave().
  const char* payload(int local) { return segment_.quick_payload(local, round_ & 1); }
  // Sleeps in a round that is still open, until somebody has ended it and called wake(), or for so long at most.
  void sleep(double seconds);
  // For whoever may have ended the round. Costs nothing if nobody sleeps.
  void wake();

  // Has read everything, or was told that the round is closed.
  void leave() { segment_.rank(me_).in_round.store(0, std::memory_order_seq_cst); }

  // For a rank that goes another way: whoever waits in an open round, awake or asleep, need not wait for it.
  void close_for_others();

 private:
  struct State {
    uint32_t id, round, count;
    bool before_full, closed;
  };
  static constexpr uint64_t kClosed = 1u << 15;
  static constexpr uint32_t kRounds = 1u << 15;
  static State decode(uint64_t word) {
    return {static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word >> 17) & (kRounds - 1),
            static_cast<uint32_t>(word) & 0x7fff, (word >> 16 & 1) != 0, (word & kClosed) != 0};
  }
  bool full(const State& s) const { return s.count == static_cast<uint32_t>(members_); }
  bool over(const State& s) const { return s.closed || full(s) || s.count == 0; }
  std::atomic<uint64_t>& word() const { return segment_.header().quick_round; }
  bool others_are_in(uint32_t round) const;

  Segment& segment_;
  const int me_;
  const int members_;
  uint32_t round_ = 0;     // this rank's
  uint32_t passed_ = ~0u;  // the last it was in, or found closed
};

template <typename Write>
bool QuickRound::arrive(uint32_t id, Write write) {
  std::atomic<uint32_t>& in_round = segment_.rank(me_).in_round;
  uint32_t written = ~0u;
  uint64_t seen = word().load(std::memory_order_acquire);
  for (;;) {
    State s = decode(seen);
    if (!over(s) && s.id != id) break;
    if (s.closed && s.id == id && s.round != passed_) {  // they gave this very call up
      passed_ = s.round;
      break;
    }
    uint32_t round = over(s) ? (s.round + 1) % kRounds : s.round;
    if (written != round) {
      in_round.store(round + 1, std::memory_order_seq_cst);
      write(segment_.quick_payload(me_, round & 1));
      written = round;
      uint64_t now = word().load(std::memory_order_seq_cst);
      if (now != seen) {
        seen = now;
        continue;
      }
    }
    uint64_t next = seen + 1;
    if (over(s)) next = uint64_t{id} << 32 | uint64_t{round} << 17 | uint64_t{full(s)} << 16 | 1;
    if (word().compare_exchange_weak(seen, next, std::memory_order_seq_cst)) {
      round_ = passed_ = round;
      return true;
    }
  }
  leave();
  return false;
}

}  // namespace hvd
