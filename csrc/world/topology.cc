// SPDX-License-Identifier: Apache-2.0
#include "world/topology.h"

#include <algorithm>
#include <map>

namespace hvd {

Topology::Topology(const hvd_world& world)
    : rank(world.rank), size(world.size), host_of_rank(world.host_of_rank, world.host_of_rank + world.size) {
  for (int h = 0; h < world.n_hosts; ++h) host_names.emplace_back(world.host_names[h]);
  ranks_of_host.resize(host_names.size());
  local_rank_of.resize(size);
  for (int r = 0; r < size; ++r) {
    auto& ranks = ranks_of_host.at(host_of_rank[r]);
    local_rank_of[r] = static_cast<int>(ranks.size());
    ranks.push_back(r);
  }
}

int Topology::cross_size() const {
  return static_cast<int>(std::count_if(ranks_of_host.begin(), ranks_of_host.end(), [&](const auto& ranks) {
    return static_cast<int>(ranks.size()) > local_rank();
  }));
}

int Topology::cross_rank() const {
  int before = 0;
  for (int h = 0; h < host(); ++h) before += static_cast<int>(ranks_of_host[h].size()) > local_rank();
  return before;
}

bool Topology::homogeneous() const {
  return std::all_of(ranks_of_host.begin(), ranks_of_host.end(),
                     [&](const auto& ranks) { return ranks.size() == ranks_of_host[0].size(); });
}

std::string Topology::describe(int r) const {
  if (r < 0 || r >= size) return "rank " + std::to_string(r);
  return "rank " + std::to_string(r) + " on " + host_names[host_of_rank[r]];
}

std::vector<int> tree_children(int host, int hosts) {
  std::vector<int> children;
  for (int c = host * kTreeArity + 1; c <= host * kTreeArity + kTreeArity && c < hosts; ++c) children.push_back(c);
  return children;
}

std::vector<int> tree_subtree(int host, int hosts) {
  std::vector<int> all{host};
  for (size_t i = 0; i < all.size(); ++i)
    for (int child : tree_children(all[i], hosts)) all.push_back(child);
  return all;
}

SetLayout::SetLayout(const Topology& topology, std::vector<int> ranks) : members(std::move(ranks)) {
  std::map<int, std::vector<int>> by_host;
  for (size_t i = 0; i < members.size(); ++i) {
    by_host[topology.host_of_rank[members[i]]].push_back(static_cast<int>(i));
    if (members[i] == topology.rank) my_index = static_cast<int>(i);
  }
  columns = static_cast<int>(members.size());
  for (auto& [host, indices] : by_host) {
    if (host == topology.host()) {
      my_host = static_cast<int>(set_hosts.size());
      for (size_t i = 0; i < indices.size(); ++i)
        if (indices[i] == my_index) my_local = static_cast<int>(i);
    }
    columns = std::min(columns, static_cast<int>(indices.size()));
    set_hosts.push_back(host);
    host_members.push_back(indices);
  }
}

int SetLayout::hops() const {
  int count = 0;
  while ((1 << count) < hosts()) ++count;
  return count;
}

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
  SetLayout set(topology, members);
  if (set.included() && set.hosts() > 1 && set.owns_column()) {
    int hosts = set.hosts();
    auto column_rank = [&](int host) { return members[set.host_members[host][set.my_local]]; };
    for (int k = 0; k < set.hops(); ++k) {
      int distance = 1 << k;
      add(HVD_LINK_DATA_OUT, column_rank((set.my_host + distance) % hosts), k, true);
      add(HVD_LINK_DATA_IN, column_rank((set.my_host - distance % hosts + hosts) % hosts), k, false);
    }
  }
  return links;
}

}  // namespace hvd
