// SPDX-License-Identifier: Apache-2.0
// A set of one: results are copies of what came in.
#include "paths/cuda/alone.h"

#include "paths/cuda/convert.h"
#include "util/dtype.h"

namespace hvd::cuda {

void Alone::copy(const void* in, void* out, size_t bytes, Stream stream) {
  if (in != out && bytes) HVD_CUDA(copy_async, address_of(out), address_of(in), bytes, stream);
}

void Alone::all_reduce(const Reduce& how, const void* in, void* out, size_t count, Stream stream) {
  if (any(how.after)) converter_.run(how.dtype, how.dtype, how.after, {{in, out, count}}, stream);
  else copy(in, out, count * item_size(how.dtype), stream);
}

void Alone::reduce_scatter(const Reduce& how, const void* in, void* out, const std::vector<size_t>& begins,
                           const std::vector<size_t>& counts, Stream stream) {
  all_reduce(how, static_cast<const char*>(in) + begins[0] * item_size(how.dtype), out, counts[0], stream);
}

void Alone::all_gather(const void* in, char* out, const std::vector<size_t>& begins, const std::vector<size_t>& bytes,
                       Stream stream) {
  copy(in, out + begins[0], bytes[0], stream);
}

void Alone::broadcast(const void* in, void* out, size_t bytes, int /*root*/, Stream stream) {
  copy(in, out, bytes, stream);
}

void Alone::all_to_all(const char* in, char* out, const std::vector<size_t>& bytes, Stream stream) {
  copy(in, out, bytes[0], stream);
}

}  // namespace hvd::cuda
