// SPDX-License-Identifier: Apache-2.0
// The members of a process set as a data path sees them: over hosts, in columns.
//
// A column is one member per host. There are as many columns as the host with the fewest members has, so hosts may
// have unequal numbers; members beyond that reach other hosts through their neighbours.
#pragma once

#include <vector>

#include "world/topology.h"

namespace hvd {

struct SetLayout {
  std::vector<int> members;                    // global ranks, ascending
  std::vector<int> set_hosts;                  // hosts with members, ascending
  std::vector<std::vector<int>> host_members;  // per set_hosts entry: member *indices*
  int columns = 1;                             // ranks per host that talk to other hosts: min local members
  int my_index = -1;                           // in members, -1 if not a member
  int my_host = -1;                            // index in set_hosts, -1 if no member is on this host
  int my_local = -1;                           // index in host_members[my_host]

  // Throws Refused for ranks that are not in the world.
  SetLayout(const Topology& topology, std::vector<int> ranks);
  int size() const { return static_cast<int>(members.size()); }
  bool included() const { return my_index >= 0; }
  int hosts() const { return static_cast<int>(set_hosts.size()); }
  int locals() const { return static_cast<int>(host_members[my_host].size()); }
  bool owns_column() const { return my_local >= 0 && my_local < columns; }
  // The member of my column on a host of the set, as a global rank.
  int column_rank(int host) const { return members[host_members[host][my_local]]; }
  // The members of a host that one of its columns carries to other hosts, in order.
  std::vector<int> carried(int host, int column) const;
  // Number of hops of length 1, 2, 4, ... that reach every host.
  int hops() const;
};

}  // namespace hvd
