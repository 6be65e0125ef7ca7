// SPDX-License-Identifier: Apache-2.0
// The arithmetic of an allreduce whose payloads lie side by side already: every rank reduces them for itself. One
// rank's is copied, or left where it is. The bits are those of Comm::reduce.
#pragma once

#include <cstddef>

#include "control/message.h"

namespace hvd {

// Puts a tensor where the others read it.
void quick_pack(const Description& d, size_t bytes, const void* in, void* room);
// The result of so many ranks. sources[i]: what rank i packed, or all ranks of host i together. out may be one of them.
void quick_reduce(const Description& d, size_t bytes, const void* const* sources, int n, int ranks, void* out);
// What the ranks of a host bring together.
void quick_combine(const Description& d, size_t bytes, const void* const* sources, int n, void* out);
// For a rank alone.
void quick_alone(const Description& d, size_t bytes, const void* in, void* out);

}  // namespace hvd
