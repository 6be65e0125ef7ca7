// SPDX-License-Identifier: Apache-2.0
// Collectives as ranges for NVIDIA's profilers, through their library found at run time. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "control/message.h"

namespace hvd {

class Nvtx {
 public:
  // library: a path; empty: nobody listens, and there are no ranges.
  explicit Nvtx(const std::string& library);

  bool active() const { return start_ != nullptr; }
  // A batch of so many tensors begins: "ALLREDUCE allreduce.conv1 and 3 more". Returns its number, for `end`.
  uint64_t start(const Description& first, size_t tensors) const;
  void end(uint64_t range) const { end_(range); }

 private:
  uint64_t (*start_)(const char* text) = nullptr;
  void (*end_)(uint64_t range) = nullptr;
};

}  // namespace hvd
