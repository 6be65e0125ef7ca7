// SPDX-License-Identifier: Apache-2.0
#include "control/aggregator.h"

#include <algorithm>

#include "horovod/core.h"

namespace hvd {

Aggregator::Aggregator(std::vector<std::vector<int>> source_ranks) : source_ranks_(std::move(source_ranks)) {
  for (size_t s = 0; s < source_ranks_.size(); ++s)
    for (int r : source_ranks_[s]) {
      if (r >= static_cast<int>(source_of_rank_.size())) source_of_rank_.resize(r + 1, -1);
      source_of_rank_[r] = static_cast<int>(s);
    }
}

void Aggregator::add_set(int id, const std::vector<int>& ranks) {
  SetInfo set;
  set.ranks = ranks;
  for (int r : ranks)
    if (r < static_cast<int>(source_of_rank_.size()) && source_of_rank_[r] >= 0)
      set.of_source[source_of_rank_[r]].push_back(r);
  for (auto& [source, members] : set.of_source) set.sources.push_back(source);
  sets_[id] = std::move(set);
}

void Aggregator::remove_set(int id) {
  sets_.erase(id);
  for (auto it = cache_.begin(); it != cache_.end();)
    it = it->second.entry->description.process_set == id ? cache_.erase(it) : std::next(it);
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (it->first.first != id) {
      ++it;
      continue;
    }
    waiting_ -= it->second.waits;
    it = pending_.erase(it);
  }
}

Aggregator::Place& Aggregator::place(const Key& key, double now) {
  Place& found = *pending_.try_emplace(key).first;
  await(found.second, now);
  return found;
}

Aggregator::Place& Aggregator::place(Cached& cached, double now) {
  if (!cached.place) {
    const Description& d = cached.entry->description;
    cached.place = &*pending_.try_emplace({d.process_set, d.name}).first;
    ++cached.place->second.ids;
  }
  await(cached.place->second, now);
  return *cached.place;
}

void Aggregator::await(Pending& p, double now) {
  if (p.waits) return;
  p.waits = true;
  p.since = now;
  p.state.resize(source_ranks_.size());
  ++waiting_;
}

void Aggregator::settle(Place& place) {
  Pending& p = place.second;
  waiting_ -= p.waits;
  if (!p.ids) {
    pending_.erase(place.first);
    return;
  }
  p.waits = false;
  p.sources_ready = 0;
  p.last_rank = -1;
  std::fill(p.state.begin(), p.state.end(), uint8_t{0});
  p.cached_id = 0;
  p.variants.clear();
  p.partial.clear();
}

void Aggregator::forget(Cached& cached) {
  if (!cached.place) return;
  Place& old = *std::exchange(cached.place, nullptr);
  if (--old.second.ids == 0 && !old.second.waits) pending_.erase(old.first);
}

std::shared_ptr<const CacheEntry> Aggregator::cached(uint32_t id) const {
  auto it = cache_.find(id);
  return it == cache_.end() ? nullptr : it->second.entry;
}

int32_t Aggregator::speaker(int source, int32_t said) const {
  const std::vector<int>& ranks = source_ranks_[static_cast<size_t>(source)];
  return said < 0 && ranks.size() == 1 ? ranks.front() : said;
}

std::vector<uint32_t> Aggregator::ready_cached(int source, const ReadyIds& ready, double now) {
  std::vector<uint32_t> unknown;
  for (size_t i = 0; i < ready.ids.size(); ++i) {
    uint32_t id = ready.ids[i];
    auto known = cache_.find(id);
    if (known == cache_.end()) {
      unknown.push_back(id);
      continue;
    }
    Place& found = place(known->second, now);
    Pending& p = found.second;
    if (p.state[source]) continue;
    ++p.sources_ready;
    p.last_rank = speaker(source, ready.last_ranks.empty() ? -1 : ready.last_ranks[i]);
    if (p.cached_id && p.cached_id != id) {
      p.state[source] = 2;
      add_variant(p, from_cache(*known->second.entry, sets_.at(found.first.first).of_source[source]));
    } else {
      p.state[source] = 1;
      p.cached_id = id;
    }
    finish_if_complete(found);
  }
  return unknown;
}

void Aggregator::ready_full(int source, std::vector<Variant> variants, double now, int32_t last_rank) {
  Key key{variants.front().description.process_set, variants.front().description.name};
  if (!sets_.count(key.first)) return;  // removed meanwhile; the rank has failed the tensor already
  Place& found = place(key, now);
  Pending& p = found.second;
  if (p.state[source]) return;
  p.state[source] = 2;
  ++p.sources_ready;
  p.last_rank = speaker(source, last_rank);
  for (Variant& v : variants) add_variant(p, std::move(v));
  finish_if_complete(found);
}

void Aggregator::add_variant(Pending& p, Variant variant) {
  for (Variant& v : p.variants)
    if (v.description == variant.description) {
      v.shares.insert(v.shares.end(), variant.shares.begin(), variant.shares.end());
      return;
    }
  p.variants.push_back(std::move(variant));
}

Variant Aggregator::from_cache(const CacheEntry& entry, const std::vector<int>& ranks) const {
  Variant v{entry.description, {}};
  for (int r : ranks) {
    if (is_joined(r)) continue;
    Share share;
    share.rank = r;
    for (const Share& known : entry.shares)
      if (known.rank == r) share = known;
    v.shares.push_back(std::move(share));
  }
  return v;
}

bool Aggregator::source_absent(const SetInfo& set, int source) const {
  const auto& members = set.of_source.at(source);
  return std::all_of(members.begin(), members.end(), [&](int r) { return is_joined(r); });
}

void Aggregator::finish_if_complete(Place& place) {
  auto& [key, p] = place;
  const SetInfo& set = sets_.at(key.first);
  if (p.sources_ready == 0) return;
  if (p.sources_ready < static_cast<int>(set.sources.size())) {
    if (joined_.empty()) return;
    for (int s : set.sources)
      if (!p.state[s] && !source_absent(set, s)) return;
  }
  Complete done;
  done.last_rank = p.last_rank;
  if (p.variants.empty()) {
    done.cached_id = p.cached_id;
  } else {
    if (p.cached_id) {
      const CacheEntry& entry = *cache_.at(p.cached_id).entry;  // apply() spells out pending ids it evicts
      for (int s : set.sources)
        if (p.state[s] == 1) add_variant(p, from_cache(entry, set.of_source.at(s)));
    }
    done.variants = std::move(p.variants);
  }
  complete_.push_back(std::move(done));
  settle(place);
}

void Aggregator::join(int rank) {
  if (!joined_set_.insert(rank).second) return;
  joined_.push_back(rank);
  for (auto it = pending_.begin(); it != pending_.end();) finish_if_complete(*it++);
}

void Aggregator::partial(const PartialReport& report, double now) {
  if (!sets_.count(report.process_set)) return;
  std::set<int>& partial = place({report.process_set, report.name}, now - report.age).second.partial;
  partial.insert(report.ready.begin(), report.ready.end());
}

void Aggregator::expand(uint32_t id) {
  auto old = retired_.find(id);
  auto entry = old != retired_.end() ? old->second : cached(id);
  if (!entry || !sets_.count(entry->description.process_set)) return;
  std::vector<int> below;
  for (auto& [source, members] : sets_.at(entry->description.process_set).of_source)
    below.insert(below.end(), members.begin(), members.end());
  complete_.push_back({0, {from_cache(*entry, below)}, -1});
  in_flight_.erase(id);
  if (old != retired_.end()) retired_.erase(old);
}

void Aggregator::apply(const Plan& plan) {
  for (const Batch& batch : plan.batches) {
    if (batch.kind == HVD_JOIN) {
      joined_.clear();
      joined_set_.clear();
    }
    for (const PlannedTensor& t : batch.tensors) {
      in_flight_.erase(t.id);
      retired_.erase(t.id);
      if (!t.full) continue;
      if (t.id) {
        auto entry = std::make_shared<CacheEntry>();
        entry->description = t.value.description;
        entry->devices = devices_key(t.value.description, t.value.shares);
        if (entry->description.varies_by_rank()) entry->shares = t.value.shares;
        Cached& known = cache_[t.id];
        forget(known);
        known.entry = std::move(entry);
      }
      // A report of a partly ready tensor may have come up before the tensor itself did.
      auto it = pending_.find({t.value.description.process_set, t.value.description.name});
      if (it != pending_.end() && it->second.sources_ready == 0) settle(*it);
    }
    if (!batch.error.empty()) continue;
    if (batch.kind == kAddProcessSet) {
      const auto& shape = batch.tensors.front().value.description.shape;
      add_set(batch.new_process_set, std::vector<int>(shape.begin(), shape.end()));
    } else if (batch.kind == kRemoveProcessSet) {
      remove_set(batch.tensors.front().value.description.root);
    }
  }
  for (uint32_t id : plan.evicted) {
    auto it = cache_.find(id);
    if (it == cache_.end()) continue;
    Cached& old = it->second;
    if (old.place && old.place->second.cached_id == id) {
      // Some sources already sent this id: keep what they meant, as if they had sent it in full.
      Pending& p = old.place->second;
      const SetInfo& set = sets_.at(old.place->first.first);
      for (int s : set.sources)
        if (p.state[s] == 1) {
          add_variant(p, from_cache(*old.entry, set.of_source.at(s)));
          p.state[s] = 2;
        }
      p.cached_id = 0;
    }
    forget(old);
    if (in_flight_.count(id)) retired_[id] = std::move(old.entry);
    cache_.erase(it);
  }
}

std::vector<Waiting> Aggregator::waiting(double before) const {
  std::vector<Waiting> list;
  for (auto& [key, p] : pending_) {
    if (!p.waits || p.since > before) continue;
    Waiting w{key.first, key.second, p.since, {}, {}};
    for (auto& [source, members] : sets_.at(key.first).of_source)
      for (int r : members) {
        if (p.state[source] || p.partial.count(r)) w.ready.push_back(r);
        else if (!is_joined(r)) w.missing.push_back(r);
      }
    list.push_back(std::move(w));
  }
  return list;
}

}  // namespace hvd
