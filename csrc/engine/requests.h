// SPDX-License-Identifier: Apache-2.0
// What may be submitted: checks that need no other rank, with the documented texts. No state, no lock.
#pragma once

#include "engine/submission.h"
#include "horovod/core.h"
#include "paths/paths.h"
#include "world/topology.h"

namespace hvd {

// Throws Refused for a request that makes no sense by itself, e.g. without a name.
void check_request(const hvd_request& request);
// Fills an entry from a request over the members of `layout`, which may be null: there is no such set. Throws Refused.
void fill_entry(const hvd_request& request, const Topology& topology, const SetLayout* layout, const Paths& paths,
                Entry* entry);
// The same list of names gives the same group on all ranks; never 0.
uint64_t group_key(const hvd_request* requests, int32_t n);

}  // namespace hvd
