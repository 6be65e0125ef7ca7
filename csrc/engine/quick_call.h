// SPDX-License-Identifier: Apache-2.0
// The short way of a blocking call: a small allreduce or a barrier of all ranks, on one host, under a name that the
// plan has brought before, while nothing else is under way here. The ranks see in each other's memory that all of them
// are at the same call (host/quick_round), and each finishes it for itself: no message, no plan, no table. A rank alone
// has nobody to look for.
//
// If they are not all there within milliseconds, for most of which who waits is asleep, or any of them goes another
// way, all of them go the general way, which waits for ever, compares descriptions and has the words for what is wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/announcer.h"
#include "engine/executor.h"
#include "engine/table.h"
#include "horovod/core.h"
#include "host/doorbells.h"
#include "host/quick_round.h"
#include "host/segment.h"
#include "util/cores.h"
#include "watch/timeline.h"
#include "world/topology.h"

namespace hvd {

class QuickCall {
 public:
  struct Options {
    bool enabled = true;
    double spin_us = 0;    // how long a wait spins before it sleeps
    bool crowded = false;  // more ranks than cores on this host
  };
  // turn: what whoever drives does when its bell has rung.
  QuickCall(const Topology& topology, Segment& segment, Doorbells& bells, Table& table, Announcer& announcer,
            Executor& executor, const Timeline& timeline, Options options, std::function<void()> turn);

  // Whether it is worth a try. Any thread.
  bool may_serve(const hvd_request& request) const {
    bool small = request.kind == HVD_BARRIER || (request.kind == HVD_ALLREDUCE && request.reduce_op != HVD_ADASUM);
    return options_.enabled && small && request.process_set == 0 && request.device < 0 && !request.wire_dtype &&
           request.struct_size == sizeof request && request.name;
  }
  // True: done. False: nothing has happened. Driving thread.
  bool run(const hvd_request& request);

  // This rank says something to the tree: nobody needs to wait for it in a round. Driving thread.
  void goes_another_way() {
    if (options_.enabled && members_ > 1) round_.close_for_others();
  }

 private:
  bool meet(uint32_t id, const Description& d, size_t bytes, const hvd_request& request);
  bool wait_until_full();

  Segment& segment_;
  Doorbells& bells_;
  Table& table_;
  Announcer& announcer_;
  Executor& executor_;
  const Timeline& timeline_;
  const Options options_;
  const std::function<void()> turn_;
  const double spin_s_;
  const int me_;
  const int members_;
  QuickRound round_;
  CoreLeaver core_;
  std::vector<const void*> sources_;
};

}  // namespace hvd
