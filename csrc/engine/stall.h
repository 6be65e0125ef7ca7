// SPDX-License-Identifier: Apache-2.0
// The stall watch: who is everybody waiting for?
//
// check() runs on the driving thread of leaders and sees what the control tree knows. tick() runs on the watch thread
// of every rank and sees what the coordinator cannot: this rank inside a collective whose peer is frozen, or a
// coordinator that is frozen itself. Each has its own fields; one is shared, and guarded.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/control_node.h"
#include "engine/executor.h"
#include "engine/table.h"
#include "paths/paths.h"
#include "util/settings.h"
#include "watch/liveness.h"
#include "world/topology.h"

namespace hvd {

class StallWatch {
 public:
  // abort: ends the job with a text.
  StallWatch(const Topology& topology, const Settings& settings, ControlNode& node, Executor& executor, Table& table,
             const Paths& paths, Liveness& liveness, std::function<void(const std::string&)> abort);

  // Throws JobAborted when a stall has lasted too long.
  void check();
  void tick();

  // What a rank that is missing did instead, e.g. "submitted 'conv3' where the others submitted 'conv4'"; "" if that is
  // not known. Any thread.
  std::string instead(int rank);

 private:
  bool enabled() const { return !settings_.stall_check_disable && limit() > 0; }
  // Seconds that something may wait: without a time for warnings there may still be one for the end.
  double limit() const {
    double warning = settings_.stall_check_time_seconds;
    return warning > 0 ? warning : settings_.stall_shutdown_time_seconds;
  }
  void report(const std::vector<Waiting>& stalled, double now);
  void find_parted(const std::vector<Waiting>& stalled);

  const Topology& topology_;
  const Settings& settings_;
  ControlNode& node_;
  Executor& executor_;
  Table& table_;
  const Paths& paths_;
  Liveness& liveness_;
  const std::function<void(const std::string&)> abort_;

  std::mutex parted_mutex_;
  std::map<int, std::string> parted_;  // by rank: what it did instead; guarded by parted_mutex_

  double next_check_ = 0;      // check()
  double last_warning_ = 0;    // check()
  double warned_locally_ = 0;  // tick()
};

}  // namespace hvd
