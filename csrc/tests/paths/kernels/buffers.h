// SPDX-License-Identifier: Apache-2.0
//
// Buffers at a chosen misalignment with guard bytes around them, and a loop over the SIMD levels.
#ifndef HOROVOD_TESTS_PATHS_KERNELS_BUFFERS_H_
#define HOROVOD_TESTS_PATHS_KERNELS_BUFFERS_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "paths/kernels/kernels.h"

namespace hvd::testing {

class Buffer {
 public:
  Buffer(size_t bytes, size_t offset) : bytes_(bytes), memory_(bytes + kGuard * 2 + 64 + offset, kFill) {
    const uintptr_t base = reinterpret_cast<uintptr_t>(memory_.data()) + kGuard;
    start_ = memory_.data() + kGuard + (64 - base % 64) % 64 + offset;
  }
  void* data() { return start_; }
  const void* data() const { return start_; }
  bool guards_intact() const {
    for (const uint8_t* p = memory_.data(); p < memory_.data() + memory_.size(); ++p) {
      if ((p < start_ || p >= start_ + bytes_) && *p != kFill) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr uint8_t kFill = 0xa5;
  size_t bytes_;
  std::vector<uint8_t> memory_;
  uint8_t* start_;
};

template <class F>
void for_each_level(const F& body) {
  for (const char* const* level = kernels::simd_levels(); *level; ++level) {
    kernels::use_simd_level(*level);
    body(*level);
  }
  kernels::use_simd_level(kernels::simd_levels()[0]);
}

}  // namespace hvd::testing

#endif  // HOROVOD_TESTS_PATHS_KERNELS_BUFFERS_H_
