// SPDX-License-Identifier: Apache-2.0
// Which connections a rank needs: hvd_plan_links.
#pragma once

#include <vector>

#include "horovod/core.h"
#include "world/topology.h"

namespace hvd {

std::vector<hvd_link> plan_links(const Topology& topology, const std::vector<int>& members, int process_set);

}  // namespace hvd
