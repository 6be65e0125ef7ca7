// SPDX-License-Identifier: Apache-2.0
#include "paths/tensor.h"

#include <string>

#include "paths/output_memory.h"
#include "util/dtype.h"

namespace hvd {

Tensor::~Tensor() { output_memory::give_back(owned); }

char* Tensor::place_output(std::vector<int64_t> final_shape) {
  output_shape = std::move(final_shape);
  if (output) return output;
  size_t needed = item_size(description.dtype);
  for (int64_t n : output_shape) needed *= static_cast<size_t>(n);
  if (alloc) {
    output =
        static_cast<char*>(alloc(alloc_context, index, output_shape.data(), static_cast<int32_t>(output_shape.size())));
    if (output || needed == 0) return output;
    // The other ranks count on this one: take part with memory of our own, and fail afterwards.
    problem = {HVD_UNKNOWN,
               "no memory for the output of " + description.name + " (" + std::to_string(needed) + " bytes)"};
  }
  owned = output_memory::take(needed);
  if (!owned)
    throw JobAborted("out of memory: " + std::to_string(needed) + " bytes for the output of " + description.name);
  output = static_cast<char*>(owned);
  return output;
}

}  // namespace hvd
