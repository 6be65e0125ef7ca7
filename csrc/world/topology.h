// SPDX-License-Identifier: Apache-2.0
// Who sits where: hosts, local ranks, host leaders, the tree of leaders, and the links each rank needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "horovod/core.h"

namespace hvd {

struct Topology {
  int rank = 0;
  int size = 1;
  std::vector<int> host_of_rank;                // [size]
  std::vector<std::string> host_names;          // [hosts]
  std::vector<std::vector<int>> ranks_of_host;  // [hosts], ascending: index = local rank
  std::vector<int> local_rank_of;               // [size]

  explicit Topology(const hvd_world& world);

  int hosts() const { return static_cast<int>(host_names.size()); }
  int host() const { return host_of_rank[rank]; }
  const std::vector<int>& local_ranks() const { return ranks_of_host[host()]; }
  int local_rank() const { return local_rank_of[rank]; }
  int local_size() const { return static_cast<int>(local_ranks().size()); }
  int leader_of(int host) const { return ranks_of_host[host].front(); }
  bool is_leader() const { return rank == leader_of(host()); }
  bool is_coordinator() const { return rank == 0; }
  int cross_size() const;
  int cross_rank() const;
  bool homogeneous() const;
  // "rank 3 on node7"
  std::string describe(int rank) const;
};

// Leaders form a tree of this arity over host indices: wide enough to stay flat for a rack, so that the
// coordinator's work grows with hosts and then with log hosts.
constexpr int kTreeArity = 8;
inline int tree_parent(int host) { return host == 0 ? -1 : (host - 1) / kTreeArity; }
std::vector<int> tree_children(int host, int hosts);
// All hosts in the subtree under (and with) this one.
std::vector<int> tree_subtree(int host, int hosts);

// The members of a process set as the data plane sees them.
struct SetLayout {
  std::vector<int> members;                    // global ranks, ascending
  std::vector<int> set_hosts;                  // hosts with members, ascending
  std::vector<std::vector<int>> host_members;  // per set_hosts entry: member *indices*
  int columns = 1;                             // ranks per host that talk to other hosts: min local members
  int my_index = -1;                           // in members, -1 if not a member
  int my_host = -1;                            // index in set_hosts
  int my_local = -1;                           // index in host_members[my_host]

  SetLayout(const Topology& topology, std::vector<int> ranks);
  bool included() const { return my_index >= 0; }
  int hosts() const { return static_cast<int>(set_hosts.size()); }
  int locals() const { return static_cast<int>(host_members[my_host].size()); }
  bool owns_column() const { return my_local >= 0 && my_local < columns; }
  // Number of hops of length 1, 2, 4, ... that reach every host.
  int hops() const;
};

std::vector<hvd_link> plan_links(const Topology& topology, const std::vector<int>& members, int process_set);

}  // namespace hvd
