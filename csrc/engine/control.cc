// SPDX-License-Identifier: Apache-2.0
// Messages up the tree ("ready here") and down (the plan). Runs on whoever drives.
#include <unistd.h>

#include <algorithm>

#include "engine/engine.h"
#include "util/clock.h"
#include "util/log.h"

namespace hvd {

bool Engine::announce_submissions() {
  std::vector<Entry*> fresh;
  bool shut_down;
  {
    std::lock_guard<std::mutex> lock(table_mutex_);
    fresh.swap(queue_);
    shut_down = shutdown_requested_ && !shutdown_sent_;
  }
  if (shut_down) {
    shutdown_sent_ = true;
    if (coordinator_) coordinator_->request_shutdown(topology.rank);
    else up_->send(encode_rank(MessageType::Shutdown, topology.rank));
  }
  std::vector<uint32_t> ids;
  for (Entry* entry : fresh) {
    if (entry->description.kind == HVD_JOIN) {
      if (!ids.empty()) send_cached(std::exchange(ids, {}));
      if (node_) node_->join(topology.rank);
      if (up_) up_->send(encode_rank(MessageType::Join, topology.rank));
      continue;
    }
    auto it = known_.find({entry->description.process_set, entry->description.name});
    if (it != known_.end() && it->second.description == entry->description && it->second.share == entry->share) {
      entry->sent_id = it->second.id;
      announced_[it->second.id] = entry;
      ids.push_back(it->second.id);
    } else {
      // What was announced first must arrive first, for groups and joins to keep their order.
      if (!ids.empty()) send_cached(std::exchange(ids, {}));
      send_full(entry);
    }
  }
  if (!ids.empty()) send_cached(ids);
  return !fresh.empty() || shut_down;
}

void Engine::send_cached(const std::vector<uint32_t>& ids) {
  metrics_.cached_announcements += static_cast<int64_t>(ids.size());
  if (!node_) {
    up_->send(encode_ready_cached(ids));
    return;
  }
  if (coordinator_ && timeline_.active())
    for (uint32_t id : ids)
      if (auto entry = node_->cached(id))
        timeline_.negotiate_begin(entry->description.name, entry->description.kind_text());
  for (uint32_t id : node_->ready_cached(0, ids, now_s())) resend_full(id);
}

void Engine::send_full(Entry* entry) {
  ++metrics_.full_announcements;
  std::vector<Variant> variants{{entry->description, {entry->share}}};
  if (!node_) {
    up_->send(encode_ready_full(variants));
    return;
  }
  note_ready(variants);
  node_->ready_full(0, std::move(variants), now_s());
}

void Engine::resend_full(uint32_t id) {
  auto it = announced_.find(id);
  if (it == announced_.end()) return;
  Entry* entry = it->second;
  announced_.erase(it);
  entry->sent_id = 0;
  send_full(entry);
}

void Engine::note_ready(const std::vector<Variant>& variants) {
  if (!coordinator_ || !timeline_.active()) return;
  for (const Variant& v : variants) {
    timeline_.negotiate_begin(v.description.name, v.description.kind_text());
    for (const Share& s : v.shares) timeline_.ready(v.description.name, s.rank);
  }
}

bool Engine::receive() {
  bool any = false;
  MessageType type;
  std::string_view body;
  for (size_t s = 1; s < sources_.size(); ++s) {
    if (!sources_[s]->receive()) continue;
    any = true;
    while (sources_[s]->parser().next(&type, &body)) from_source(static_cast<int>(s), type, body);
  }
  if (up_) {
    up_->flush();
    if (up_->receive()) {
      any = true;
      while (up_->parser().next(&type, &body)) from_parent(type, body);
    }
  }
  for (size_t s = 1; s < sources_.size(); ++s) sources_[s]->flush();
  return any;
}

void Engine::from_source(int source, MessageType type, std::string_view body) {
  Reader reader(body);
  switch (type) {
    case MessageType::ReadyCached: {
      auto ids = decode_ids(reader);
      if (coordinator_ && timeline_.active())
        for (uint32_t id : ids)
          if (auto entry = node_->cached(id))
            timeline_.negotiate_begin(entry->description.name, entry->description.kind_text());
      for (uint32_t id : node_->ready_cached(source, ids, now_s())) sources_[source]->send(encode_need_full(id));
      break;
    }
    case MessageType::ReadyFull: {
      auto variants = decode_variants(reader);
      note_ready(variants);
      node_->ready_full(source, std::move(variants), now_s());
      break;
    }
    case MessageType::Join: {
      int rank = reader.get<int32_t>();
      node_->join(rank);
      if (up_) up_->send(encode_rank(MessageType::Join, rank));
      break;
    }
    case MessageType::Shutdown: {
      int rank = reader.get<int32_t>();
      if (coordinator_) coordinator_->request_shutdown(rank);
      else up_->send(encode_rank(MessageType::Shutdown, rank));
      break;
    }
    case MessageType::Partial: node_->partial(decode_partial(reader), now_s()); break;
    default: throw ParseError("a message of the wrong direction came up");
  }
}

void Engine::from_parent(MessageType type, std::string_view body) {
  Reader reader(body);
  if (type == MessageType::NeedFull) {
    for (uint32_t id : decode_ids(reader)) {
      if (node_) node_->expand(id);
      else resend_full(id);
    }
  } else if (type == MessageType::Plan) {
    Plan plan = decode_plan(reader);
    std::string encoded = node_ ? encode_plan(plan) : "";
    follow(plan, &encoded);
  } else {
    throw ParseError("a message of the wrong direction came down");
  }
}

// Leaders that are not the root: what is complete below goes up, cached ids in one message.
void Engine::pass_up() {
  std::vector<uint32_t> ids;
  for (Complete& done : node_->take_complete()) {
    if (done.cached_id) {
      node_->sent_up(done.cached_id);
      ids.push_back(done.cached_id);
    } else {
      if (!ids.empty()) up_->send(encode_ready_cached(std::exchange(ids, {})));
      up_->send(encode_ready_full(done.variants));
    }
  }
  if (!ids.empty()) up_->send(encode_ready_cached(ids));
}

bool Engine::plan_if_root() {
  for (Complete& done : node_->take_complete()) coordinator_->accept(std::move(done));
  if (!coordinator_->has_work()) return false;
  if (settings_.cycle_time > 0) {
    double now = now_s();
    if (now < next_plan_at_) return false;
    next_plan_at_ = now + settings_.cycle_time * 1e-3;
  }
  timeline_.cycle();
  Plan plan = coordinator_->schedule();
  std::string encoded = sources_.size() > 1 ? encode_plan(plan) : "";
  follow(plan, &encoded);
  return true;
}

void Engine::follow(const Plan& plan, const std::string* encoded) {
  ++metrics_.plans;
  if (node_) {
    if (coordinator_ && timeline_.active())
      for (const Batch& batch : plan.batches)
        for (const PlannedTensor& t : batch.tensors) {
          if (t.full) timeline_.negotiate_end(t.value.description.name);
          else if (auto entry = node_->cached(t.id)) timeline_.negotiate_end(entry->description.name);
        }
    node_->apply(plan);
    for (size_t s = 1; s < sources_.size(); ++s) sources_[s]->send(*encoded);
    flush_down();
  }
  for (const Batch& batch : plan.batches) execute(batch);
  for (uint32_t id : plan.evicted) forget(id);
  if (plan.shutdown) {
    shutdown_seen_ = true;
    liveness_->expect_goodbyes();
    fail_everything({HVD_UNKNOWN, kShutdownText});
  }
}

// Nobody may start a batch before all below have been told of it: they are waited for inside.
void Engine::flush_down() {
  for (size_t s = 1; s < sources_.size(); ++s)
    while (!sources_[s]->flush()) {
      lane_->check();
      usleep(20);
    }
}

void Engine::forget(uint32_t id) {
  auto key = key_of_id_.find(id);
  if (key == key_of_id_.end()) return;
  auto known = known_.find(key->second);
  if (known != known_.end() && known->second.id == id) known_.erase(known);
  key_of_id_.erase(key);
}

}  // namespace hvd
