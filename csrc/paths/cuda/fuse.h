// SPDX-License-Identifier: Apache-2.0
// Which tensors of a batch travel together in a buffer and which from where they lie. Pure, and the same on every rank:
// it rests on sizes and types alone.
#pragma once

#include <cstddef>
#include <vector>

#include "paths/cuda/tiles.h"

namespace hvd::cuda {

constexpr size_t kAloneBytes = 1 << 20;  // from here on a tensor gains nothing by being packed

struct Packed {
  size_t tensor;
  size_t offset;  // bytes from the start of the buffer
};

struct FusionPlan {
  std::vector<size_t> alone;
  std::vector<Packed> packed;
  size_t bytes = 0;  // of the buffer
};

// bytes[i]: of tensor i as it travels. must_pack: its memory cannot travel as it is (casts, prescaling).
inline FusionPlan plan_fusion(const std::vector<size_t>& bytes, bool must_pack) {
  FusionPlan plan;
  size_t small = 0;
  for (size_t b : bytes) small += b > 0 && b < kAloneBytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (!bytes[i]) continue;
    if (!must_pack && (bytes[i] >= kAloneBytes || small == 1)) {
      plan.alone.push_back(i);
    } else {
      plan.packed.push_back({i, plan.bytes});
      plan.bytes += round_up(bytes[i], 16);
    }
  }
  return plan;
}

// Rows of a reducescatter that member i of n gets.
struct Rows {
  size_t first;
  size_t count;
};
inline Rows rows_of(size_t rows, size_t i, size_t n) {
  size_t base = rows / n;
  size_t extra = rows % n;
  return {i * base + (i < extra ? i : extra), base + (i < extra ? 1 : 0)};
}

}  // namespace hvd::cuda
