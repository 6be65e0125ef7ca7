// SPDX-License-Identifier: Apache-2.0
#include "paths/host/comm.h"

#include <algorithm>

namespace hvd {

size_t smallest_slot(const SetLayout& layout) {
  size_t most_locals = 1;
  if (layout.hosts() > 1)
    for (const auto& on_host : layout.host_members) most_locals = std::max(most_locals, on_host.size());
  return std::max({Sizes{}.small, layout.members.size() * kPieceAlign, layout.members.size() * most_locals});
}

Comm::Comm(const Topology& topology, Lane& lane, std::shared_ptr<const SetLayout> set)
    : shared_layout(std::move(set)), layout(*shared_layout), lane_(lane) {
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
