// SPDX-License-Identifier: Apache-2.0
// Do all ranks mean the same thing by a name?
#pragma once

#include <string>
#include <vector>

#include "control/message.h"
#include "world/topology.h"

namespace hvd {

// Empty if the variants of one tensor agree and make sense; else the text every rank gets. `joined` says
// that members of the set have joined and send nothing more.
std::string check_variants(const std::vector<Variant>& variants, bool joined, const Topology& topology);

}  // namespace hvd
