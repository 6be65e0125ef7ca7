// SPDX-License-Identifier: Apache-2.0
// Sleeping on a word of shared memory.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <climits>
#include <cstdint>
#include <ctime>

#include "util/clock.h"

namespace hvd {

// Sleeps while *word == expected, until woken or for timeout_s.
inline void futex_wait(const std::atomic<uint32_t>* word, uint32_t expected, double timeout_s) {
  timespec limit = timespec_of(timeout_s);
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

// Where to sleep on a wider word: its low half.
inline const std::atomic<uint32_t>* low_half(const std::atomic<uint64_t>& word) {
  static_assert(std::endian::native == std::endian::little);
  return reinterpret_cast<const std::atomic<uint32_t>*>(&word);
}

inline void futex_wake_all(const std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace hvd
