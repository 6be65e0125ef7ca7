// SPDX-License-Identifier: Apache-2.0
#include "world/topology.h"

#include <algorithm>
#include <numeric>

#include "util/status.h"

namespace hvd {
namespace {

// The rank of a world that makes sense.
int checked_rank(const hvd_world& world) {
  auto refuse = [](const std::string& what) { throw Refused(HVD_INVALID, "a world that cannot be: " + what); };
  if (world.size < 1) refuse(std::to_string(world.size) + " ranks");
  if (world.rank < 0 || world.rank >= world.size)
    refuse("rank " + std::to_string(world.rank) + " of " + std::to_string(world.size));
  if (world.n_hosts < 1 || world.n_hosts > world.size) refuse(std::to_string(world.n_hosts) + " hosts");
  if (!world.host_of_rank || !world.host_names) refuse("no hosts given");
  for (int r = 0; r < world.size; ++r)
    if (world.host_of_rank[r] < 0 || world.host_of_rank[r] >= world.n_hosts)
      refuse("rank " + std::to_string(r) + " is on host " + std::to_string(world.host_of_rank[r]) + " of " +
             std::to_string(world.n_hosts));
  for (int h = 0; h < world.n_hosts; ++h) {
    if (!world.host_names[h]) refuse("host " + std::to_string(h) + " has no name");
    if (std::find(world.host_of_rank, world.host_of_rank + world.size, h) == world.host_of_rank + world.size)
      refuse("host " + std::to_string(h) + " has no rank");
  }
  if (world.host_of_rank[0] != 0) refuse("rank 0 is not on host 0");
  return world.rank;
}

}  // namespace

Topology::Topology(const hvd_world& world)
    : rank(checked_rank(world)),
      size(world.size),
      generation(world.generation),
      host_of_rank(world.host_of_rank, world.host_of_rank + world.size) {
  for (int h = 0; h < world.n_hosts; ++h) host_names.emplace_back(world.host_names[h]);
  ranks_of_host.resize(host_names.size());
  local_rank_of.resize(size);
  for (int r = 0; r < size; ++r) {
    auto& ranks = ranks_of_host[host_of_rank[r]];
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

std::vector<int> Topology::everyone() const {
  std::vector<int> all(size);
  std::iota(all.begin(), all.end(), 0);
  return all;
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

}  // namespace hvd
