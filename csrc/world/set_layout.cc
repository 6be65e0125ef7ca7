// SPDX-License-Identifier: Apache-2.0
#include "world/set_layout.h"

#include <algorithm>
#include <map>

#include "util/status.h"

namespace hvd {

SetLayout::SetLayout(const Topology& topology, std::vector<int> ranks) : members(std::move(ranks)) {
  std::map<int, std::vector<int>> by_host;
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] < 0 || members[i] >= topology.size)
      throw Refused(HVD_INVALID, "a process set of rank " + std::to_string(members[i]) + " in a world of " +
                                     std::to_string(topology.size));
    by_host[topology.host_of_rank[members[i]]].push_back(static_cast<int>(i));
    if (members[i] == topology.rank) my_index = static_cast<int>(i);
  }
  columns = size();
  for (auto& [host, indices] : by_host) {
    if (host == topology.host()) {
      my_host = hosts();
      for (size_t i = 0; i < indices.size(); ++i)
        if (indices[i] == my_index) my_local = static_cast<int>(i);
    }
    columns = std::min(columns, static_cast<int>(indices.size()));
    set_hosts.push_back(host);
    host_members.push_back(indices);
  }
}

std::vector<int> SetLayout::carried(int host, int column) const {
  std::vector<int> list;
  const auto& on_host = host_members[host];
  for (size_t i = static_cast<size_t>(column); i < on_host.size(); i += static_cast<size_t>(columns))
    list.push_back(on_host[i]);
  return list;
}

int SetLayout::hops() const {
  int count = 0;
  while ((1 << count) < hosts()) ++count;
  return count;
}

}  // namespace hvd
