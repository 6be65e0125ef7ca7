// SPDX-License-Identifier: Apache-2.0
#include "paths/host/quick_reduce.h"

#include <cstring>

#include "horovod/core.h"
#include "paths/kernels/kernels.h"
#include "util/dtype.h"

namespace hvd {

void quick_pack(const Description& d, size_t bytes, const void* in, void* room) {
  if (d.prescale != 1.0) kernels::scale(d.dtype, room, in, bytes / item_size(d.dtype), d.prescale);
  else if (bytes && room != in) std::memcpy(room, in, bytes);
}

void quick_reduce(const Description& d, size_t bytes, const void* const* sources, int n, int ranks, void* out) {
  kernels::Finish finish{d.postscale, d.reduce_op == HVD_AVERAGE ? ranks : 1};
  kernels::reduce2(d.dtype, d.reduce_op, out, nullptr, sources, n, bytes / item_size(d.dtype), finish, false);
}

void quick_combine(const Description& d, size_t bytes, const void* const* sources, int n, void* out) {
  kernels::reduce(d.dtype, d.reduce_op, out, sources, n, bytes / item_size(d.dtype));
}

void quick_alone(const Description& d, size_t bytes, const void* in, void* out) {
  quick_pack(d, bytes, in, out);
  if (d.postscale != 1.0) kernels::finish(d.dtype, out, bytes / item_size(d.dtype), d.postscale, 1);
}

}  // namespace hvd
