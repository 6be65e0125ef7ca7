// SPDX-License-Identifier: Apache-2.0
#include "paths/host/spans.h"

#include <cstring>

#include "paths/kernels/kernels.h"

namespace hvd {

void Spans::add(const void* in, void* out, size_t bytes) {
  starts_.push_back(this->bytes());
  spans_.push_back({static_cast<const char*>(in), static_cast<char*>(out), bytes});
}

void Spans::unpack(size_t begin, size_t end, const char* from, bool large) const {
  each(begin, end, [&](const Span& part, size_t at) {
    if (!part.out) return;
    if (large) kernels::copy_stream(part.out, from + at, part.bytes);
    else std::memcpy(part.out, from + at, part.bytes);
  });
}

}  // namespace hvd
