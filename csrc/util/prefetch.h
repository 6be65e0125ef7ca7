// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace hvd {

// Memory that is written soon: one wait for all of its lines instead of one each.
inline void prefetch_to_write(const void* memory, size_t bytes) {
  constexpr size_t kLine = 64;
  for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(static_cast<const char*>(memory) + at, 1);
}

}  // namespace hvd
