// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "horovod/core.h"

namespace hvd::testing {

// The world as one rank of it sees it. `names` holds what the result points to, and so does host_of.
inline hvd_world describe_world(int rank, const std::vector<int>& host_of, const std::vector<std::string>& host_names,
                                std::vector<const char*>* names) {
  for (const std::string& name : host_names) names->push_back(name.c_str());
  hvd_world world{};
  world.struct_size = sizeof world;
  world.rank = rank;
  world.size = int(host_of.size());
  world.n_hosts = int(host_names.size());
  world.host_of_rank = host_of.data();
  world.host_names = names->data();
  world.shm_fd = -1;
  return world;
}

}  // namespace hvd::testing
