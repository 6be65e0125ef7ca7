// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace hvd {

// Pins the calling thread to the core that HOROVOD_THREAD_AFFINITY ("0,2,4,6") names for this local rank.
// Problems are logged, never fatal.
void pin_this_thread(const std::string& list, int local_rank, int local_size);

}  // namespace hvd
