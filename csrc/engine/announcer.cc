// SPDX-License-Identifier: Apache-2.0
#include "engine/announcer.h"

#include <utility>

#include "util/clock.h"

namespace hvd {

bool Announcer::announce() {
  fresh_.clear();
  table_.take_queued(&fresh_);
  if (fresh_.empty()) return false;
  before_speaking_();
  std::vector<uint32_t> ids;
  // What was announced first must arrive first, for groups and joins to keep their order.
  auto say_ids = [&] {
    if (!ids.empty()) node_.say_ready(std::exchange(ids, {}));
  };
  double now = fresh_.empty() ? 0 : now_s();
  for (Entry* entry : fresh_) {
    entry->announced = now;
    recorder_.announced(entry->record, now);
    if (entry->description.kind == HVD_JOIN) {
      say_ids();
      node_.say_joined();
      continue;
    }
    auto it = by_key_.find(entry->key());
    if (it != by_key_.end() && it->second->agreed->description == entry->description &&
        it->second->share == entry->share) {
      entry->sent_id = it->second->id;
      announced_[entry->sent_id] = it->second;
      ids.push_back(entry->sent_id);
    } else {
      say_ids();
      node_.say_ready(entry->description, entry->share);
    }
  }
  say_ids();
  return true;
}

const Announcer::Known* Announcer::find(int32_t process_set, std::string_view name) const {
  auto it = by_key_.find({process_set, name});
  return it == by_key_.end() ? nullptr : it->second.get();
}

void Announcer::say_in_full(uint32_t id) {
  auto it = announced_.find(id);
  if (it == announced_.end()) return;
  Entry* entry = table_.pending(it->second->key);
  announced_.erase(it);
  if (!entry || entry->sent_id != id) return;  // failed meanwhile
  entry->sent_id = 0;
  node_.say_ready(entry->description, entry->share);
}

void Announcer::match(const Batch& batch, PlannedBatch* matched) {
  keys_.clear();
  for (const PlannedTensor& t : batch.tensors) {
    if (t.full) {
      keys_.emplace_back(t.value.description.process_set, t.value.description.name);
      matched->agreed.push_back(std::make_shared<const Variant>(t.value));
    } else {
      auto it = by_id_.find(t.id);
      if (it == by_id_.end()) throw JobAborted("the plan names an id this rank does not know");
      keys_.push_back(it->second->key);
      matched->agreed.push_back(it->second->agreed);
    }
  }
  table_.board(keys_, &matched->tensors);
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    const PlannedTensor& t = batch.tensors[i];
    auto* entry = static_cast<Entry*>(matched->tensors[i]);
    if (!entry) continue;
    if (entry->sent_id) announced_.erase(entry->sent_id);
    if (t.full && t.id && batch.error.empty()) learn(t.id, *entry, t.value);
  }
}

void Announcer::learn(uint32_t id, const Entry& entry, const Variant& agreed) {
  bool varies = agreed.description.varies_by_rank();
  auto known = std::make_shared<Known>(Known{
      id, entry.description.name, entry.key(), entry.share,
      std::make_shared<const Variant>(Variant{agreed.description, varies ? agreed.shares : std::vector<Share>{}})});
  known->key.name = known->name;
  auto old = by_key_.find(known->key);
  if (old != by_key_.end()) {
    by_id_.erase(old->second->id);
    by_key_.erase(old);  // its key is that of the old one's name
  }
  by_key_.emplace(known->key, known);
  by_id_[id] = std::move(known);
}

void Announcer::forget(const std::vector<uint32_t>& evicted) {
  for (uint32_t id : evicted) {
    auto it = by_id_.find(id);
    if (it == by_id_.end()) continue;
    auto named = by_key_.find(it->second->key);
    if (named != by_key_.end() && named->second->id == id) by_key_.erase(named);
    by_id_.erase(it);
  }
}

void Announcer::forget_set(int32_t id) {
  for (auto it = by_key_.begin(); it != by_key_.end();) {
    if (it->first.process_set != id) {
      ++it;
      continue;
    }
    by_id_.erase(it->second->id);
    it = by_key_.erase(it);
  }
}

}  // namespace hvd
