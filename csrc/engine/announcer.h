// SPDX-License-Identifier: Apache-2.0
// What this rank tells the control tree, and what it may say by a number: a description goes out in full once, and by
// the id the plan gave it after that, as long as it is unchanged. Driving thread only: nothing here is guarded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "control/message.h"
#include "engine/control_node.h"
#include "engine/submission.h"
#include "engine/table.h"
#include "engine/tensor_key.h"
#include "paths/data_path.h"

namespace hvd {

class Announcer {
 public:
  Announcer(Table& table, ControlNode& node, Recorder& recorder) : table_(table), node_(node), recorder_(recorder) {}

  // Tells the tree of everything that was queued since the last call; true if there was anything.
  bool announce();
  // An id was not known above any more.
  void say_in_full(uint32_t id);
  // Finds this rank's entries for a batch of the plan, marks them as in flight, and learns new ids.
  void match(const Batch& batch, PlannedBatch* matched);
  void forget(const std::vector<uint32_t>& evicted);
  void forget_set(int32_t id);

  // What has an id: all ranks of the set have agreed on it.
  struct Known {
    uint32_t id;
    std::string name;
    TensorKey key;                          // of that name
    Share share;                            // this rank's
    std::shared_ptr<const Variant> agreed;  // with everybody's shares where they vary
  };
  // Null if the name has none. Valid until the next plan.
  const Known* find(int32_t process_set, std::string_view name) const;
  // Called before this rank says anything to the tree.
  void before_speaking(std::function<void()> callback) { before_speaking_ = std::move(callback); }

 private:
  using KnownPtr = std::shared_ptr<const Known>;
  void learn(uint32_t id, const Entry& entry, const Variant& agreed);

  Table& table_;
  ControlNode& node_;
  Recorder& recorder_;
  std::function<void()> before_speaking_ = [] {};
  std::unordered_map<TensorKey, KnownPtr, TensorKeyHash> by_key_;  // by the keys of what is known
  std::unordered_map<uint32_t, KnownPtr> by_id_;
  std::unordered_map<uint32_t, KnownPtr> announced_;  // ids said and not planned yet
  std::vector<Entry*> fresh_;                         // scratch of announce()
  std::vector<TensorKey> keys_;                       // scratch of match()
};

}  // namespace hvd
