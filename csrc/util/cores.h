// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <algorithm>

namespace hvd {

// How many cores the calling thread may run on.
inline int usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

// Moves the calling thread to another of its cores, where the scheduler may keep it; false if it has only one.
inline bool leave_core() {
  cpu_set_t mine;
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) return false;
  cpu_set_t others = mine;
  int here = sched_getcpu();
  if (here < 0) return false;
  CPU_CLR(static_cast<size_t>(here), &others);
  if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return false;
  sched_setaffinity(0, sizeof mine, &mine);
  return true;
}

}  // namespace hvd
