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
  for (auto it = pending_.begin(); it != pending_.end();)
    it = it->first.first == id ? pending_.erase(it) : std::next(it);
  for (auto it = cache_.begin(); it != cache_.end();)
    it = it->second->description.process_set == id ? cache_.erase(it) : std::next(it);
}

Aggregator::Pending& Aggregator::pending(const Key& key, double now) {
  Pending& p = pending_[key];
  if (p.state.empty()) {
    p.state.resize(source_ranks_.size());
    p.since = now;
  }
  return p;
}

std::shared_ptr<const CacheEntry> Aggregator::cached(uint32_t id) const {
  auto it = cache_.find(id);
  return it == cache_.end() ? nullptr : it->second;
}

int32_t Aggregator::speaker(int source, int32_t said) const {
  const std::vector<int>& ranks = source_ranks_[static_cast<size_t>(source)];
  return said < 0 && ranks.size() == 1 ? ranks.front() : said;
}

std::vector<uint32_t> Aggregator::ready_cached(int source, const ReadyIds& ready, double now) {
  std::vector<uint32_t> unknown;
  for (size_t i = 0; i < ready.ids.size(); ++i) {
    uint32_t id = ready.ids[i];
    auto entry = cached(id);
    if (!entry) {
      unknown.push_back(id);
      continue;
    }
    Key key{entry->description.process_set, entry->description.name};
    Pending& p = pending(key, now);
    if (p.state[source]) continue;
    ++p.sources_ready;
    p.last_rank = speaker(source, ready.last_ranks.empty() ? -1 : ready.last_ranks[i]);
    if (p.cached_id && p.cached_id != id) {
      p.state[source] = 2;
      add_variant(p, from_cache(*entry, sets_.at(key.first).of_source[source]));
    } else {
      p.state[source] = 1;
      p.cached_id = id;
    }
    finish_if_complete(key);
  }
  return unknown;
}

void Aggregator::ready_full(int source, std::vector<Variant> variants, double now, int32_t last_rank) {
  Key key{variants.front().description.process_set, variants.front().description.name};
  if (!sets_.count(key.first)) return;  // removed meanwhile; the rank has failed the tensor already
  Pending& p = pending(key, now);
  if (p.state[source]) return;
  p.state[source] = 2;
  ++p.sources_ready;
  p.last_rank = speaker(source, last_rank);
  for (Variant& v : variants) add_variant(p, std::move(v));
  finish_if_complete(key);
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

void Aggregator::finish_if_complete(const Key& key) {
  auto it = pending_.find(key);
  const SetInfo& set = sets_.at(key.first);
  Pending& p = it->second;
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
      const CacheEntry& entry = *cache_.at(p.cached_id);  // apply() spells out pending ids it evicts
      for (int s : set.sources)
        if (p.state[s] == 1) add_variant(p, from_cache(entry, set.of_source.at(s)));
    }
    done.variants = std::move(p.variants);
  }
  complete_.push_back(std::move(done));
  pending_.erase(it);
}

void Aggregator::join(int rank) {
  if (!joined_set_.insert(rank).second) return;
  joined_.push_back(rank);
  std::vector<Key> keys;
  for (auto& [key, p] : pending_) keys.push_back(key);
  for (const Key& key : keys) finish_if_complete(key);
}

void Aggregator::partial(const PartialReport& report, double now) {
  if (!sets_.count(report.process_set)) return;
  Pending& p = pending({report.process_set, report.name}, now - report.age);
  p.partial.insert(report.ready.begin(), report.ready.end());
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
        cache_[t.id] = std::move(entry);
      }
      // A report of a partly ready tensor may have come up before the tensor itself did.
      auto it = pending_.find({t.value.description.process_set, t.value.description.name});
      if (it != pending_.end() && it->second.sources_ready == 0) pending_.erase(it);
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
    bool referenced = in_flight_.count(id) != 0;
    auto waiting = pending_.find({it->second->description.process_set, it->second->description.name});
    if (waiting != pending_.end() && waiting->second.cached_id == id) {
      // Some sources already sent this id: keep what they meant, as if they had sent it in full.
      Pending& p = waiting->second;
      const SetInfo& set = sets_.at(waiting->first.first);
      for (int s : set.sources)
        if (p.state[s] == 1) {
          add_variant(p, from_cache(*it->second, set.of_source.at(s)));
          p.state[s] = 2;
        }
      p.cached_id = 0;
    }
    if (referenced) retired_[id] = std::move(it->second);
    cache_.erase(it);
  }
}

std::vector<Waiting> Aggregator::waiting(double before) const {
  std::vector<Waiting> list;
  for (auto& [key, p] : pending_) {
    if (p.since > before) continue;
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
