// SPDX-License-Identifier: Apache-2.0
#include "paths/host/comm.h"

namespace hvd {

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
