// SPDX-License-Identifier: Apache-2.0
// What a device did for one batch, told when it is done: times by now_s().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hvd {

struct DeviceWork {
  struct Part {
    const char* name;  // static memory, e.g. "PACK"
    double until;      // it began where the one before ended
  };
  int device = 0;
  std::string tensor;  // the first of the batch
  size_t tensors = 1;
  const char* kind = "";  // e.g. "ALLREDUCE"
  const char* way = "";   // e.g. "NCCL"
  uint64_t seq = 0;
  int64_t bytes = 0;
  double ready = 0;  // when this rank's inputs were there
  double from = 0;
  std::vector<Part> parts;

  double until() const { return parts.empty() ? from : parts.back().until; }
};

}  // namespace hvd
