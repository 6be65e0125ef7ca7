// SPDX-License-Identifier: Apache-2.0
#include "paths/host/comm.h"

#include <cstring>

#include "paths/kernels/kernels.h"

namespace hvd {

void Stream::add(const void* in, void* out, size_t bytes) {
  starts_.push_back(this->bytes());
  spans_.push_back({static_cast<const char*>(in), static_cast<char*>(out), bytes});
}

void Stream::unpack(size_t begin, size_t end, const char* from, bool large) const {
  each(begin, end, [&](const Span& part, size_t at) {
    if (!part.out) return;
    if (large) kernels::copy_stream(part.out, from + at, part.bytes);
    else std::memcpy(part.out, from + at, part.bytes);
  });
}

Comm::Comm(const Topology& topology, Lane& lane, SetLayout set) : layout(std::move(set)), lane_(lane) {
  if (layout.my_host >= 0)
    for (int index : layout.host_members[layout.my_host])
      locals_.push_back(topology.local_rank_of[layout.members[index]]);
}

void Comm::settle() {
  uint32_t step = lane_.reserve(1);
  lane_.publish(step);
  lane_.wait_all(step);
}

}  // namespace hvd
