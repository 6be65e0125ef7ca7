// SPDX-License-Identifier: Apache-2.0
// Scale factors made ready for the kernels, with the rules of the host kernels.
#pragma once

#include <cstdint>

#include "horovod/core.h"
#include "paths/cuda/element.h"
#include "util/dtype.h"

namespace hvd::cuda {

// x * factor / divisor
inline Scaling scaling_for(int dtype, double factor, int64_t divisor) {
  if (dtype == HVD_BOOL) {  // stays what it is, unless the factor is 0
    factor = factor == 0.0 ? 0.0 : 1.0;
    divisor = 1;
  }
  Scaling s{factor, static_cast<double>(divisor), divisor, 0, 0};
  if (is_floating(dtype) && (divisor & (divisor - 1)) == 0) {  // exact, and cheaper than to divide
    s.multiplier /= s.divisor;
    s.divisor = 1.0;
  }
  s.multiply = s.multiplier != 1.0;
  s.divide = s.divisor != 1.0;
  return s;
}

inline bool any(const Scaling& s) { return s.multiply || s.divide; }

}  // namespace hvd::cuda
