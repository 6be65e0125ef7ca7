// SPDX-License-Identifier: Apache-2.0
#include "engine/affinity.h"

#include <pthread.h>
#include <sched.h>

#include <cstdlib>
#include <sstream>
#include <vector>

#include "util/log.h"

namespace hvd {

void pin_this_thread(const std::string& list, int local_rank, int local_size) {
  std::vector<long> cores;
  std::stringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    char* end = nullptr;
    long core = std::strtol(part.c_str(), &end, 10);
    if (end == part.c_str()) {
      HVD_LOG(Error, "No digits were found in HOROVOD_THREAD_AFFINITY=" << list);
      return;
    }
    if (core < 0) {
      HVD_LOG(Error, "Core ID cannot be less than zero but got " << core << " in HOROVOD_THREAD_AFFINITY=" << list);
      return;
    }
    if (core >= CPU_SETSIZE) {
      HVD_LOG(Error, "Core ID value is invalid in HOROVOD_THREAD_AFFINITY=" << list);
      return;
    }
    cores.push_back(core);
  }
  if (static_cast<int>(cores.size()) < local_size) {
    HVD_LOG(Error,
            "Expected " << local_size << " core ids but got " << cores.size() << ". HOROVOD_THREAD_AFFINITY=" << list);
    return;
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cores[local_rank]), &set);
  if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0) HVD_LOG(Error, "setaffinity failed");
}

}  // namespace hvd
