// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <algorithm>
#include <vector>

namespace hvd {

// How many cores the calling thread may run on.
inline int usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

inline cpu_set_t no_cores() {
  cpu_set_t none;
  CPU_ZERO(&none);
  return none;
}

// Moves the calling thread to another of its cores, where the scheduler may keep it; false if all others are taken.
inline bool leave_core(const cpu_set_t& taken) {
  cpu_set_t mine;
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) return false;
  int here = sched_getcpu();
  if (here < 0) return false;
  cpu_set_t others;
  CPU_AND(&others, &mine, &taken);
  CPU_XOR(&others, &others, &mine);  // mine that nobody has
  CPU_CLR(static_cast<size_t>(here), &others);
  if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return false;
  sched_setaffinity(0, sizeof mine, &mine);
  return true;
}

// Where more ranks than cores are spread unevenly: the core that this rank should move to, or -1. core_of: where each
// rank was last seen, or -1. Of those on a core the last one moves, to the emptiest, if that has two fewer: with 3
// ranks on one core and 1 on another everybody waits for the 3.
inline int evener_core(const std::vector<int>& core_of, int me, const cpu_set_t& mine) {
  int here = core_of[static_cast<size_t>(me)];
  auto ranks_on = [&](int core) { return std::count(core_of.begin(), core_of.end(), core); };
  auto last_here = std::find(core_of.rbegin(), core_of.rend(), here);
  if (here < 0 || core_of.rend() - last_here - 1 != me) return -1;
  int best = -1;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<size_t>(core), &mine) && (best < 0 || ranks_on(core) < ranks_on(best))) best = core;
  return best >= 0 && ranks_on(best) + 2 <= ranks_on(here) ? best : -1;
}

// Two ranks that wake each other are drawn to one core by the scheduler and then take turns on it, at half the speed;
// as they never run at the same time, it sees no reason to part them. So one of them moves.
class CoreLeaver {
 public:
  // Moves the calling thread, unless it did just now; false if it stays where it is. taken: cores not to move to. A
  // thread that is told to move comes to any other, idle or not: of 16 ranks on 16 cores, next to another rank.
  bool leave(double now, const cpu_set_t& taken = no_cores()) {
    if (now - left_at_ < kEvery) return false;
    left_at_ = now;
    return leave_core(taken);
  }

 private:
  static constexpr double kEvery = 1e-3;  // seconds; moving costs some 20 us
  double left_at_ = 0;
};

// When a wait for another host offers its core. That rank has cores of its own, or, as hosts may be containers of one
// machine, needs this very one; offering it to whoever else wants it costs milliseconds where the machine is busy. So a
// wait keeps its core for a moment first; unless several of late had to offer it: then it is offered at once, and
// keeping it is tried again only now and then.
class CoreOffer {
 public:
  // A call begins that may wait several times.
  void begin() { keep_ = outlasted_ >= kOutlasted && ++calls_ % kTryEvery != 0 ? 0 : kKeep; }
  bool due(double waited) const { return waited >= keep_; }
  // A wait has ended.
  void ended(double waited) {
    if (waited < keep_) outlasted_ = 0;
    else if (keep_ > 0) ++outlasted_;
  }

 private:
  static constexpr double kKeep = 30e-6;  // seconds; an answer takes some 10 us
  static constexpr int kOutlasted = 3;
  static constexpr unsigned kTryEvery = 256;
  double keep_ = kKeep;
  int outlasted_ = 0;  // waits in a row that were longer
  unsigned calls_ = 0;
};

}  // namespace hvd
