// SPDX-License-Identifier: Apache-2.0
#include "control/coordinator.h"

#include <algorithm>
#include <memory>

#include "control/checks.h"
#include "horovod/core.h"

namespace hvd {

Coordinator::Coordinator(const Topology& topology, const Settings& settings, const Aggregator& aggregator)
    : topology_(topology), settings_(settings), aggregator_(aggregator) {}

bool Coordinator::has_work() const {
  return !ready_.empty() || (departure_.rank >= 0 && !shutdown_planned_) ||
         static_cast<int>(aggregator_.joined().size()) == topology_.size;
}

Coordinator::Ready Coordinator::resolve(Complete complete) {
  Ready ready;
  ready.last_rank = complete.last_rank;
  bool joined = false;
  int set = complete.cached_id ? aggregator_.cached(complete.cached_id)->description.process_set
                               : complete.variants.front().description.process_set;
  if (!aggregator_.joined().empty())
    for (int r : aggregator_.set_ranks(set)) joined |= aggregator_.is_joined(r);
  if (complete.cached_id) {
    ready.id = complete.cached_id;
    auto entry = aggregator_.cached(ready.id);
    ready.entry = entry;
    ready.description = &entry->description;
    ready.bytes = payload_bytes(entry->description, entry->shares);
    ready.devices = entry->devices;
    if (joined) {
      // A joined rank may never have seen this tensor: spell it out.
      ready.full = std::make_unique<Variant>(Variant{entry->description, entry->shares});
      ready.description = &ready.full->description;
      ready.error = check_variants({*ready.full}, true, topology_);
    }
  } else {
    ready.error = check_variants(complete.variants, joined, topology_);
    ready.full = std::make_unique<Variant>(std::move(complete.variants.front()));
    ready.description = &ready.full->description;
    ready.bytes = payload_bytes(*ready.description, ready.full->shares);
    ready.devices = devices_key(*ready.description, ready.full->shares);
  }
  if (!ready.error.empty()) ready.error_code = HVD_PRECONDITION;
  ready.group = ready.description->group;
  return ready;
}

void Coordinator::accept(Complete complete) {
  Ready ready = resolve(std::move(complete));
  if (!ready.group) {
    ready_.push_back(std::move(ready));
    return;
  }
  auto key = std::make_pair(ready.description->process_set, ready.group);
  Group& group = groups_[key];
  if (group.refused.count(ready.description->name)) group = {};  // the rest of it never came
  int32_t size = ready.description->group_size;
  ++group.seen;
  if (group.error.empty() && !ready.error.empty())
    group.error = ready.error + " (It was submitted in one group of " + std::to_string(size) + " tensors.)";
  group.members.push_back(std::move(ready));
  // A mismatch in one member fails those that are here at once: the others may never become complete.
  if (group.seen < size && group.error.empty()) return;
  for (Ready& member : group.members) {
    if (!group.error.empty()) group.refused.insert(member.description->name);
    if (!group.error.empty() && member.error.empty()) {
      member.error = group.error;
      member.error_code = HVD_PRECONDITION;
    }
    ready_.push_back(std::move(member));
  }
  group.members.clear();
  if (group.seen >= size) groups_.erase(key);
}

bool Coordinator::fusible(const Ready& a, const Ready& b) const {
  const Description& x = *a.description;
  const Description& y = *b.description;
  if (!a.error.empty() || !b.error.empty()) return false;
  if (x.kind != HVD_ALLREDUCE && x.kind != HVD_ALLGATHER && x.kind != HVD_REDUCESCATTER) return false;
  if (settings_.disable_group_fusion && a.group != b.group) return false;
  return x.kind == y.kind && x.process_set == y.process_set && x.dtype == y.dtype && x.reduce_op == y.reduce_op &&
         x.prescale == y.prescale && x.postscale == y.postscale && x.device == y.device && x.wire == y.wire &&
         a.devices == b.devices;
}

uint32_t Coordinator::remember(const Variant& variant, Plan* plan) {
  const Description& d = variant.description;
  if (settings_.cache_capacity <= 0 || d.kind >= kAddProcessSet) return 0;
  auto key = std::make_pair(d.process_set, d.name);
  auto forget = [&](uint32_t id) {
    plan->evicted.push_back(id);
    recent_.erase(place_.at(id));
    place_.erase(id);
    id_of_.erase(name_of_.at(id));
    name_of_.erase(id);
  };
  if (auto old = id_of_.find(key); old != id_of_.end()) forget(old->second);
  if (static_cast<int64_t>(recent_.size()) >= settings_.cache_capacity) {
    has_evicted_ = true;
    forget(recent_.front());
  }
  uint32_t id = next_id_++;
  recent_.push_back(id);
  place_[id] = std::prev(recent_.end());
  id_of_[key] = id;
  name_of_[id] = key;
  return id;
}

void Coordinator::plan_process_set(Ready& ready, Batch* batch) {
  const Description& d = *ready.description;
  if (d.kind == kAddProcessSet) {
    if (free_sets_.empty()) {
      batch->new_process_set = next_set_++;
    } else {
      batch->new_process_set = free_sets_.front();
      free_sets_.pop_front();
    }
  } else if (d.kind == kRemoveProcessSet) {
    if (!aggregator_.has_set(d.root) || d.root == 0) {
      batch->error = "Process set " + std::to_string(d.root) + " does not exist.";
      batch->error_code = HVD_INVALID;
      return;
    }
    free_sets_.push_back(d.root);
    std::erase_if(groups_, [&](const auto& group) { return group.first.first == d.root; });
    for (auto it = id_of_.begin(); it != id_of_.end();) {
      if (it->first.first != d.root) {
        ++it;
        continue;
      }
      recent_.erase(place_.at(it->second));
      place_.erase(it->second);
      name_of_.erase(it->second);
      it = id_of_.erase(it);
    }
  }
}

void Coordinator::plan_tensor(Ready ready, Batch* batch, Plan* plan) {
  PlannedTensor planned;
  if (ready.full) {
    planned.full = true;
    planned.value = std::move(*ready.full);
    // While ranks are joined the description is spelled out but the id stays what it was.
    if (ready.id) planned.id = ready.id;
    else if (ready.error.empty()) planned.id = remember(planned.value, plan);
  } else {
    auto place = place_.find(ready.id);
    if (place != place_.end()) {
      planned.id = ready.id;
      recent_.splice(recent_.end(), recent_, place->second);
    } else {  // evicted while its group was waiting
      planned.full = true;
      planned.value = {ready.entry->description, ready.entry->shares};
      planned.id = remember(planned.value, plan);
    }
  }
  batch->tensors.push_back(std::move(planned));
}

Plan Coordinator::schedule() {
  Plan plan;
  while (!ready_.empty()) {
    Ready first = std::move(ready_.front());
    ready_.pop_front();
    Batch batch;
    batch.seq = next_seq_++;
    batch.process_set = first.description->process_set;
    batch.kind = first.description->kind;
    batch.error = first.error;
    batch.error_code = first.error_code;
    if (batch.error.empty()) plan_process_set(first, &batch);
    int64_t total = first.bytes;
    int64_t skipped = 0;
    // Take what fits, looking past what does not as long as little is passed over.
    std::vector<Ready> taken;
    for (auto it = ready_.begin(); it != ready_.end() && total < settings_.fusion_threshold;) {
      if (fusible(first, *it) && total + it->bytes <= settings_.fusion_threshold) {
        total += it->bytes;
        taken.push_back(std::move(*it));
        it = ready_.erase(it);
      } else {
        skipped += it->bytes;
        if (skipped > settings_.fusion_threshold) break;
        ++it;
      }
    }
    batch.last_rank = taken.empty() ? first.last_rank : taken.back().last_rank;  // they stand in order of completion
    plan_tensor(std::move(first), &batch, &plan);
    for (Ready& r : taken) plan_tensor(std::move(r), &batch, &plan);
    plan.batches.push_back(std::move(batch));
  }
  if (static_cast<int>(aggregator_.joined().size()) == topology_.size) {
    Batch batch;
    batch.seq = next_seq_++;
    batch.kind = HVD_JOIN;
    batch.joined_last = aggregator_.joined().back();
    plan.batches.push_back(std::move(batch));
  }
  if (departure_.rank >= 0 && !shutdown_planned_) {
    plan.shutdown = shutdown_planned_ = true;
    plan.departure = departure_;
  }
  return plan;
}

}  // namespace hvd
