// SPDX-License-Identifier: Apache-2.0
// Gather, scale, cast and scatter: many tensors in one launch.
#pragma once

#include <vector>

#include "paths/cuda/modules.h"
#include "paths/cuda/scaling.h"
#include "paths/cuda/stop_word.h"

namespace hvd::cuda {

// Cuts segments into launches; pure. A launch has at most kMostSegments, none of them empty.
std::vector<Convert> plan_conversion(const Aborted& aborted, const Scaling& scaling,
                                     const std::vector<Segment>& segments);

class Converter {
 public:
  Converter(Modules& modules, const StopWord& stop) : modules_(modules), stop_(stop) {}
  // Every segment from one type to another, both hvd_dtypes. Allowed: a type to itself; float32 and float64 to and from
  // the half types; 16-bit integers to and from those of 32 bits.
  void run(int from, int to, const Scaling& scaling, const std::vector<Segment>& segments, Stream stream);

 private:
  Modules& modules_;
  const StopWord& stop_;
};

}  // namespace hvd::cuda
