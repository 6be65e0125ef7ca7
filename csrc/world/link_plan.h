// SPDX-License-Identifier: Apache-2.0
// Which connections a rank needs: hvd_plan_links.
#pragma once

#include <vector>

#include "horovod/core.h"
#include "world/topology.h"

namespace hvd {

// Leaders of so many hosts have a link between each two of them, for small calls (net/quick_wire).
constexpr int kQuickHosts = 8;
inline bool meets_quickly(const Topology& topology) {
  return topology.hosts() > 1 && topology.hosts() <= kQuickHosts && topology.is_leader();
}

std::vector<hvd_link> plan_links(const Topology& topology, const std::vector<int>& members, int process_set);

}  // namespace hvd
