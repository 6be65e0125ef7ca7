// SPDX-License-Identifier: Apache-2.0
#include "world/link_plan.h"

#include "world/set_layout.h"

namespace hvd {

std::vector<hvd_link> plan_links(const Topology& topology, const std::vector<int>& members, int process_set) {
  std::vector<hvd_link> links;
  auto add = [&](int kind, int peer, int hop, bool dial) {
    links.push_back({kind, peer, process_set, hop, dial ? 1 : 0, -1, {}});
  };
  if (process_set == 0) {
    // The later rank dials the earlier one, so rank 0 never waits to be told anything.
    if (topology.is_leader()) {
      for (int r : topology.local_ranks())
        if (r != topology.rank) add(HVD_LINK_WATCH, r, 0, false);
      for (int child : tree_children(topology.host(), topology.hosts())) {
        add(HVD_LINK_CONTROL, topology.leader_of(child), 0, false);
        add(HVD_LINK_WATCH, topology.leader_of(child), 0, false);
      }
      if (int parent = tree_parent(topology.host()); parent >= 0) {
        add(HVD_LINK_CONTROL, topology.leader_of(parent), 0, true);
        add(HVD_LINK_WATCH, topology.leader_of(parent), 0, true);
      }
    } else {
      add(HVD_LINK_WATCH, topology.leader_of(topology.host()), 0, true);
    }
  }
  if (process_set == 0 && meets_quickly(topology))
    for (int host = 0; host < topology.hosts(); ++host)
      if (host != topology.host()) add(HVD_LINK_QUICK, topology.leader_of(host), 0, host < topology.host());
  SetLayout set(topology, members);
  if (set.included() && set.hosts() > 1 && set.owns_column()) {
    int hosts = set.hosts();
    for (int k = 0; k < set.hops(); ++k) {
      int distance = 1 << k;
      add(HVD_LINK_DATA_OUT, set.column_rank((set.my_host + distance) % hosts), k, true);
      add(HVD_LINK_DATA_IN, set.column_rank((set.my_host - distance % hosts + hosts) % hosts), k, false);
    }
  }
  return links;
}

}  // namespace hvd
