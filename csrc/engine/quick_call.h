// SPDX-License-Identifier: Apache-2.0
// The short way of a blocking call: a small allreduce or a barrier of all ranks, under a name that the plan has brought
// before, while nothing else is under way here. The ranks see in each other's memory that all of them are at the same
// call (host/quick_round), and each finishes it for itself: no message, no plan, no table. A rank alone has nobody to
// look for. On a few hosts, the leader of a host whose ranks are all there then meets those of the others
// (net/quick_wire) and tells its own how that ended.
//
// An allreduce of a device's memory, of any size, is started by each rank of a host once all are there. The order of
// what the devices are given is the same on all ranks all the same: a rank comes only while none of its tensors is
// under way, and follows no plan before it knows how the round has ended.
//
// If the ranks of a host are not all there within milliseconds, for most of which who waits is asleep, or any of them
// goes another way, all of them go the general way, which waits for ever, compares descriptions and has the words for
// what is wrong. Hosts wait for each other longer, also asleep, but not so long that the stall watch would miss them.
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
#include "net/quick_wire.h"
#include "util/cores.h"
#include "watch/timeline.h"
#include "world/topology.h"

namespace hvd {

class QuickCall {
 public:
  struct Options {
    bool enabled = true;
    double spin_us = 0;             // how long a wait for ranks of this host spins before it sleeps
    double hosts_spin_us = 0;       // and one for other hosts, before it sleeps
    bool crowded = false;           // more ranks than cores on this host
    std::vector<int> sockets = {};  // whose input is work for a turn, or for the wire
  };
  // wire: null unless this rank leads one of several hosts. turn: what whoever drives does when its bell has rung.
  QuickCall(const Topology& topology, Segment& segment, Doorbells& bells, QuickWire* wire, Table& table,
            Announcer& announcer, Executor& executor, const Timeline& timeline, Options options,
            std::function<void()> turn);

  // Whether it is worth a try. Any thread.
  bool may_serve(const hvd_request& request) const {
    bool small = request.kind == HVD_BARRIER || (request.kind == HVD_ALLREDUCE && request.reduce_op != HVD_ADASUM);
    return options_.enabled && small && request.process_set == 0 && !request.wire_dtype &&
           request.struct_size == sizeof request && request.name;
  }
  // True: done. False: nothing has happened, or a device failed: the general way says why. Driving thread.
  bool run(const hvd_request& request);

  // This rank says something to the tree: nobody needs to wait for it in a round. Driving thread.
  void goes_another_way() {
    if (options_.enabled && members_ > 1) round_.close_for_others();
    if (wire_) wire_->close_for_others();
  }
  // Hears what other hosts say; busy: ranks of this one go another way. Throws JobAborted. Driving thread.
  void tend(bool busy);

  // How the leader tells its host the end of a round of all hosts: its number, of which 31 bits are said, and whether
  // it was full.
  static uint32_t end_of(uint32_t met, bool full) { return met << 1 | uint32_t{full}; }
  static bool is_of(uint32_t end, uint32_t met) { return (end ^ met << 1) <= 1; }

 private:
  bool run_on_device(const Announcer::Known& known, const std::shared_ptr<const Variant>& agreed, size_t bytes,
                     const hvd_request& request);
  // Whether all ranks have come to this call; host memory then has the result.
  bool come(uint32_t id, const Description& d, size_t bytes, const hvd_request& request, double now);
  bool meet(uint32_t id, const Description& d, size_t bytes, const hvd_request& request);
  bool wait_until_full(const Description& d);
  // The leader: all ranks of this host are there.
  bool meet_hosts(uint32_t id, const Description& d, size_t bytes, const hvd_request& request);
  // What they bring together, until the call ends or the output is written.
  const char* of_my_host(const Description& d, size_t bytes, const hvd_request& request);
  bool wait_for_hosts(const Description& d);
  // The others: what became of it.
  bool wait_for_leader(const Description& d);
  // Whether the end of a call that this rank is in will not come any more.
  bool is_lost(double patience, double now, double* over_since);
  void falls_asleep(const Description& d, double since);

  Segment& segment_;
  Doorbells& bells_;
  QuickWire* const wire_;
  Table& table_;
  Announcer& announcer_;
  Executor& executor_;
  const Timeline& timeline_;
  const Options options_;
  const std::function<void()> turn_;
  const double spin_s_;
  const int me_;
  const int members_;
  const int hosts_;
  const int my_host_;
  const int size_;
  const size_t limit_;
  QuickRound round_;
  uint32_t met_ = 0;       // rounds that all ranks of this host have come to
  std::vector<char> own_;  // what a rank alone on its host brings, if it is not the tensor itself
  CoreLeaver core_;
  CoreOffer offer_;
  double ended_ = 0;      // when the last call did
  bool soon_ = false;     // this one came right after it
  bool slept_ = false;    // in this call
  int shared_calls_ = 0;  // see wait_for_hosts
  std::vector<const void*> sources_;
};

}  // namespace hvd
