// SPDX-License-Identifier: Apache-2.0
// Host memory for results that are made anew at every call.
//
// Fresh memory is dear: the kernel clears each page when it is first written, which for 64 MiB takes as long again as
// reducing them. So large blocks that come back are kept for the next result of about that size, up to a limit. Until
// then the kernel may have their pages if it runs short of memory (MADV_FREE).
//
// One for the whole process: results outlive the engine. Any thread may call.
#pragma once

#include <cstddef>

#include "horovod/core.h"

namespace hvd::output_memory {

// Blocks from this size on are kept; the smaller ones malloc has at hand.
constexpr size_t kLarge = HVD_LARGE_OUTPUT;

// A multiple of 64, for give_back; null: out of memory.
void* take(size_t bytes);
void give_back(void* memory);
// Keeps at most so many bytes of unused memory from now on; what is more goes back to the system at once.
void keep(size_t most);
// Bytes of unused memory.
size_t kept();

// Around a fork, so that the child finds everything whole.
void before_fork();
void after_fork();

}  // namespace hvd::output_memory
