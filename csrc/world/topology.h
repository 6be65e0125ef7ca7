// SPDX-License-Identifier: Apache-2.0
// Who sits where: hosts, local ranks, host leaders, and the tree of leaders.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "horovod/core.h"

namespace hvd {

struct Topology {
  int rank = 0;
  int size = 1;
  uint32_t generation = 0;                      // which life of the job's world this is
  std::vector<int> host_of_rank;                // [size]
  std::vector<std::string> host_names;          // [hosts]
  std::vector<std::vector<int>> ranks_of_host;  // [hosts], ascending: index = local rank
  std::vector<int> local_rank_of;               // [size]

  // Throws Refused for a world that cannot be.
  explicit Topology(const hvd_world& world);

  int hosts() const { return static_cast<int>(host_names.size()); }
  int host() const { return host_of_rank[rank]; }
  const std::vector<int>& local_ranks() const { return ranks_of_host[host()]; }
  int local_rank() const { return local_rank_of[rank]; }
  int local_size() const { return static_cast<int>(local_ranks().size()); }
  int leader_of(int host) const { return ranks_of_host[host].front(); }
  bool is_leader() const { return rank == leader_of(host()); }
  bool is_coordinator() const { return rank == 0; }
  bool same_host(int rank) const { return host_of_rank[rank] == host(); }
  int cross_size() const;
  int cross_rank() const;
  bool homogeneous() const;
  std::vector<int> everyone() const;
  // "rank 3 on node7"
  std::string describe(int rank) const;
  std::string describe() const { return describe(rank); }
};

// Leaders form a tree of this arity over host indices: wide enough to stay flat for a rack, so that the
// coordinator's work grows with hosts and then with log hosts.
constexpr int kTreeArity = 8;
inline int tree_parent(int host) { return host == 0 ? -1 : (host - 1) / kTreeArity; }
std::vector<int> tree_children(int host, int hosts);
// All hosts in the subtree under (and with) this one.
std::vector<int> tree_subtree(int host, int hosts);

}  // namespace hvd
