// SPDX-License-Identifier: Apache-2.0
// Process sets come and go by the plan, like tensors: every rank changes them at the same place in the order.
#include <algorithm>
#include <utility>

#include "engine/engine.h"
#include "util/status.h"

namespace hvd {

// The driving thread.
void Engine::change_process_sets(const Batch& batch) {
  PlannedBatch matched;
  announcer_.match(batch, &matched);
  if (!batch.error.empty()) return table_.complete(matched.tensors, {batch.error_code, batch.error});
  const Description& d = matched.agreed.front()->description;
  if (batch.kind == kAddProcessSet) {
    auto layout = std::make_shared<const SetLayout>(topology, std::vector<int>(d.shape.begin(), d.shape.end()));
    paths_.add_set(batch.new_process_set, layout);
    table_.add_set(batch.new_process_set, layout);
    if (auto* entry = static_cast<Entry*>(matched.tensors.front())) entry->value = batch.new_process_set;
  } else {
    table_.remove_set(d.root);
    announcer_.forget_set(d.root);
    paths_.remove_set(d.root);
  }
  table_.complete(matched.tensors, {});
}

Status Engine::run_internal(int kind, const std::string& name, std::vector<int64_t> shape, int32_t root,
                            int64_t* value) {
  auto submission = Submission::make(1);
  submission->flags = HVD_WILL_WAIT;
  Entry& entry = submission->entries[0];
  entry.description.name = name;
  entry.description.kind = kind;
  entry.description.shape = std::move(shape);
  entry.description.root = root;
  entry.share.rank = topology.rank;
  int64_t handle = table_.add(submission);
  Status status = driver_.wait(*submission, -1);
  *value = entry.value;
  table_.release(handle);
  return status;
}

int32_t Engine::add_process_set(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= topology.size)
      throw Refused(HVD_INVALID, "Tried to register process set with invalid rank: " + std::to_string(ranks[i]));
    if (i && ranks[i] == ranks[i - 1])
      throw Refused(HVD_INVALID, "Tried to register process set with duplicate rank: " + std::to_string(ranks[i]));
  }
  if (ranks.empty()) throw Refused(HVD_INVALID, "Tried to register an empty process set");
  if (int32_t id = table_.find_set(ranks); id >= 0)
    throw Refused(HVD_INVALID,
                  "Attempted to add a duplicate process set: it is registered with id " + std::to_string(id));
  int64_t id = 0;
  Status status = run_internal(kAddProcessSet, "process_set.add", {ranks.begin(), ranks.end()}, -1, &id);
  if (!status.ok()) throw Refused(status.code, status.text);
  return static_cast<int32_t>(id);
}

void Engine::remove_process_set(int32_t id) {
  int64_t unused = 0;
  Status status = run_internal(kRemoveProcessSet, "process_set.remove", {}, id, &unused);
  if (!status.ok()) throw Refused(status.code, status.text);
}

std::vector<int> Engine::process_set_ranks(int32_t id) {
  auto layout = table_.set(id);
  return layout ? layout->members : std::vector<int>{};
}

}  // namespace hvd
