// SPDX-License-Identifier: Apache-2.0
// The root of the control tree: checks complete tensors, fuses what is ready, and writes the plan that
// every rank executes in the same order. Pure bookkeeping like the Aggregator it reads from.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "control/aggregator.h"
#include "control/message.h"
#include "util/settings.h"
#include "world/topology.h"

namespace hvd {

class Coordinator {
 public:
  Coordinator(const Topology& topology, const Settings& settings, const Aggregator& aggregator);

  void accept(Complete complete);
  // The first to ask is the one that is named.
  void request_shutdown(Departure departure) {
    if (departure_.rank < 0) departure_ = std::move(departure);
  }
  // Something to plan: ready tensors, a finished join round, a shutdown.
  bool has_work() const;
  Plan schedule();
  // Whether descriptions were dropped for want of room; a hint to the user, to be logged once.
  bool has_evicted() const { return has_evicted_; }

 private:
  struct Ready {
    uint32_t id = 0;
    const Description* description = nullptr;  // of `entry` or of `full`
    std::shared_ptr<const CacheEntry> entry;
    std::unique_ptr<Variant> full;
    int64_t bytes = 0;
    uint64_t devices = 0;  // devices_key
    uint64_t group = 0;
    int32_t last_rank = -1;
    std::string error;
    int error_code = 0;
  };
  struct Group {
    std::vector<Ready> members;
    int32_t seen = 0;
    std::string error;              // a member was refused: so are those that come after it
    std::set<std::string> refused;  // names; one that comes again begins the group anew
  };

  Ready resolve(Complete complete);
  bool fusible(const Ready& a, const Ready& b) const;
  void plan_tensor(Ready ready, Batch* batch, Plan* plan);
  uint32_t remember(const Variant& variant, Plan* plan);
  void plan_process_set(Ready& ready, Batch* batch);

  const Topology& topology_;
  const Settings& settings_;
  const Aggregator& aggregator_;
  std::deque<Ready> ready_;
  std::map<std::pair<int32_t, uint64_t>, Group> groups_;
  uint64_t next_seq_ = 1;
  Departure departure_;  // rank -1: nobody wants to leave
  bool shutdown_planned_ = false;

  // Cached ids, least recently used first. Ids are never reused.
  uint32_t next_id_ = 1;
  std::list<uint32_t> recent_;
  std::unordered_map<uint32_t, std::list<uint32_t>::iterator> place_;
  std::map<std::pair<int32_t, std::string>, uint32_t> id_of_;
  std::unordered_map<uint32_t, std::pair<int32_t, std::string>> name_of_;
  bool has_evicted_ = false;

  std::deque<int32_t> free_sets_;
  int32_t next_set_ = 1;
};

}  // namespace hvd
