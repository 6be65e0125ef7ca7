// SPDX-License-Identifier: Apache-2.0
// Collects "ready" from the ranks below one node of the control tree: a host leader's local ranks and the
// leaders under it. A tensor is complete here when every source with members of its process set has sent
// it (or has joined); only then one message goes up. Pure bookkeeping, no input or output: the engine moves
// the bytes, and tests drive it with a thousand simulated ranks.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "control/message.h"

namespace hvd {

// A tensor that is ready everywhere below this node.
struct Complete {
  uint32_t cached_id = 0;         // non-zero: all sources sent this id, variants is empty
  std::vector<Variant> variants;  // else what they sent
  int32_t last_rank = -1;         // whose word completed it; -1: unknown
};

struct CacheEntry {
  Description description;
  std::vector<Share> shares;  // of all members, when the description varies by rank
  uint64_t devices = 0;       // devices_key of them
};

// For the stall watch.
struct Waiting {
  int process_set;
  std::string name;
  double since;
  std::vector<int> ready;    // global ranks known to have submitted it
  std::vector<int> missing;  // members below this node that have not
};

class Aggregator {
 public:
  // source_ranks[s]: the ranks that speak through source s.
  explicit Aggregator(std::vector<std::vector<int>> source_ranks);

  void add_set(int id, const std::vector<int>& ranks);
  void remove_set(int id);
  bool has_set(int id) const { return sets_.count(id) != 0; }
  const std::vector<int>& set_ranks(int id) const { return sets_.at(id).ranks; }

  // Returns ids this node does not know (evicted meanwhile): the source must send them in full. Who was last is known
  // where one rank speaks through the source, and else said.
  std::vector<uint32_t> ready_cached(int source, const ReadyIds& ready, double now);
  void ready_full(int source, std::vector<Variant> variants, double now, int32_t last_rank = -1);
  void join(int rank);
  void partial(const PartialReport& report, double now);
  // A cached id this node sent up was unknown there; it comes back as a complete tensor in full.
  void expand(uint32_t id);

  // Tensors that became complete since the last call, in order.
  std::deque<Complete> take_complete() { return std::exchange(complete_, {}); }
  bool has_complete() const { return !complete_.empty(); }

  // Follows the plan on its way down: new ids, evictions, process sets, the end of a join round.
  void apply(const Plan& plan);
  // With a non-root node, remembers ids that were sent up until the plan answers.
  void sent_up(uint32_t id) { in_flight_.insert(id); }

  std::shared_ptr<const CacheEntry> cached(uint32_t id) const;
  const std::vector<int>& joined() const { return joined_; }
  bool is_joined(int rank) const { return joined_set_.count(rank) != 0; }
  bool idle() const { return waiting_ == 0; }
  // Tensors that wait since before `before`.
  std::vector<Waiting> waiting(double before) const;

 private:
  using Key = std::pair<int, std::string>;
  struct SetInfo {
    std::vector<int> ranks;
    std::vector<int> sources;                   // with members in this set
    std::map<int, std::vector<int>> of_source;  // source -> its members in this set
  };
  // A tensor that somebody was heard of, from the first word on until it is complete.
  struct Pending {
    bool waits = false;
    double since = 0;
    int sources_ready = 0;
    int32_t last_rank = -1;
    std::vector<uint8_t> state;  // per source: 0 nothing, 1 by id, 2 in full
    uint32_t cached_id = 0;
    std::vector<Variant> variants;
    std::set<int> partial;  // ranks below sources that are not complete themselves
    int ids = 0;            // cached ids that lead here: it is kept for their next turn
  };
  using Place = std::pair<const Key, Pending>;  // stays where it is
  struct Cached {
    std::shared_ptr<const CacheEntry> entry;
    Place* place = nullptr;  // null: not looked for yet
  };

  Place& place(const Key& key, double now);
  Place& place(Cached& cached, double now);
  void await(Pending& pending, double now);
  void finish_if_complete(Place& place);
  // It waits no more; forgotten unless an id leads to it.
  void settle(Place& place);
  void forget(Cached& cached);
  int32_t speaker(int source, int32_t said) const;
  bool source_absent(const SetInfo& set, int source) const;
  void add_variant(Pending& pending, Variant variant);
  Variant from_cache(const CacheEntry& entry, const std::vector<int>& ranks) const;

  std::vector<std::vector<int>> source_ranks_;
  std::vector<int> source_of_rank_;
  std::map<int, SetInfo> sets_;
  std::map<Key, Pending> pending_;
  size_t waiting_ = 0;  // of them
  std::deque<Complete> complete_;
  std::unordered_map<uint32_t, Cached> cache_;
  std::unordered_map<uint32_t, std::shared_ptr<const CacheEntry>> retired_;  // evicted while in flight
  std::set<uint32_t> in_flight_;
  std::vector<int> joined_;  // in order of joining
  std::set<int> joined_set_;
};

}  // namespace hvd
