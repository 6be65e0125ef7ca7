// SPDX-License-Identifier: Apache-2.0
#include "engine/control_node.h"

#include <unistd.h>

#include <utility>

#include "util/clock.h"
#include "util/log.h"

namespace hvd {

std::vector<std::vector<int>> ranks_of_sources(const Topology& topology) {
  std::vector<std::vector<int>> sources{{topology.rank}};
  for (int r : topology.local_ranks())
    if (r != topology.rank) sources.push_back({r});
  for (int child : tree_children(topology.host(), topology.hosts())) {
    std::vector<int> below;
    for (int h : tree_subtree(child, topology.hosts()))
      below.insert(below.end(), topology.ranks_of_host[h].begin(), topology.ranks_of_host[h].end());
    sources.push_back(std::move(below));
  }
  return sources;
}

ControlNode::ControlNode(const Topology& topology, const Settings& settings, Channels channels, Listener& listener,
                         Timeline& timeline, Metrics& metrics, std::function<void()> check)
    : topology_(topology),
      settings_(settings),
      channels_(std::move(channels)),
      listener_(listener),
      timeline_(timeline),
      metrics_(metrics),
      check_(std::move(check)) {
  if (!topology.is_leader()) return;
  node_ = std::make_unique<Aggregator>(ranks_of_sources(topology));
  node_->add_set(0, topology.everyone());
  if (!topology.is_coordinator()) return;
  coordinator_ = std::make_unique<Coordinator>(topology, settings, *node_);
  if (settings.autotune && topology.size > 1) tuning_ = std::make_unique<TuningSession>(topology, settings);
}

std::vector<int> ControlNode::sockets() const {
  std::vector<int> fds;
  if (channels_.up && channels_.up->fd() >= 0) fds.push_back(channels_.up->fd());
  for (const auto& source : channels_.sources)
    if (source && source->fd() >= 0) fds.push_back(source->fd());
  return fds;
}

bool ControlNode::has_backlog() const {
  if (channels_.up && channels_.up->has_backlog()) return true;
  for (const auto& source : channels_.sources)
    if (source && source->has_backlog()) return true;
  return false;
}

// ------------------------------------------------------------------------------ what this rank says --

void ControlNode::say_ready(const std::vector<uint32_t>& ids) {
  metrics_.cached_announcements += static_cast<int64_t>(ids.size());
  if (!node_) return channels_.up->send(encode_ready_cached(ids));
  trace_ready(ids);
  for (uint32_t id : node_->ready_cached(0, {ids, {}}, now_s())) listener_.need_full(id);
}

void ControlNode::say_ready(const Description& description, const Share& share) {
  ++metrics_.full_announcements;
  std::vector<Variant> variants{{description, {share}}};
  if (!node_) return channels_.up->send(encode_ready_full(variants));
  trace_ready(variants);
  node_->ready_full(0, std::move(variants), now_s());
}

void ControlNode::say_joined() { joined(topology_.rank); }

// What the rank was ready for before it joined goes up first: above, its absence would otherwise complete the tensor,
// and its own word that comes behind would count for the next one of that name.
void ControlNode::joined(int rank) {
  if (node_ && channels_.up) pass_up();
  if (node_) node_->join(rank);
  if (channels_.up) channels_.up->send(encode_join(rank));
}

void ControlNode::say_shutdown(const std::string& reason) { pass_on({topology_.rank, reason}); }

void ControlNode::pass_on(Departure departure) {
  if (coordinator_) coordinator_->request_shutdown(std::move(departure));
  else channels_.up->send(encode_shutdown(departure));
}

// ------------------------------------------------------------------------------------- the messages --

bool ControlNode::turn() {
  bool any = receive();
  if (coordinator_) return plan_if_due() || any;
  if (node_) pass_up();
  return any;
}

bool ControlNode::receive() {
  bool any = false;
  MessageType type;
  std::string_view body;
  auto& sources = channels_.sources;
  for (size_t s = 1; s < sources.size(); ++s) {
    if (!sources[s]->receive()) continue;
    any = true;
    while (sources[s]->parser().next(&type, &body)) from_source(static_cast<int>(s), type, body);
  }
  if (Channel* up = channels_.up.get()) {
    up->flush();
    if (up->receive()) {
      any = true;
      while (up->parser().next(&type, &body)) from_parent(type, body);
    }
  }
  for (size_t s = 1; s < sources.size(); ++s) sources[s]->flush();
  return any;
}

void ControlNode::from_source(int source, MessageType type, std::string_view body) {
  Reader reader(body);
  switch (type) {
    case MessageType::ReadyCached: {
      ReadyIds ready = decode_ready_cached(reader);
      trace_ready(ready.ids);
      for (uint32_t id : node_->ready_cached(source, ready, now_s()))
        channels_.sources[source]->send(encode_need_full(id));
      break;
    }
    case MessageType::ReadyFull: {
      int32_t last_rank = -1;
      auto variants = decode_variants(reader, &last_rank);
      trace_ready(variants);
      node_->ready_full(source, std::move(variants), now_s(), last_rank);
      break;
    }
    case MessageType::Join: joined(decode_join(reader)); break;
    case MessageType::Shutdown: pass_on(decode_shutdown(reader)); break;
    case MessageType::Partial: node_->partial(decode_partial(reader), now_s()); break;
    default: throw ParseError("a message of the wrong direction came up");
  }
}

void ControlNode::from_parent(MessageType type, std::string_view body) {
  Reader reader(body);
  if (type == MessageType::NeedFull) {
    for (uint32_t id : decode_ids(reader)) {
      if (node_) node_->expand(id);
      else listener_.need_full(id);
    }
  } else if (type == MessageType::Plan) {
    Plan plan = decode_plan(reader);
    follow(plan, node_ ? encode_plan(plan) : "");
  } else {
    throw ParseError("a message of the wrong direction came down");
  }
}

// Leaders that are not the root: what is complete below goes up, cached ids in one message.
void ControlNode::pass_up() {
  ReadyIds ready;
  auto send_ids = [&] {
    if (!ready.ids.empty()) channels_.up->send(encode_ready_cached(ready.ids, ready.last_ranks));
    ready = {};
  };
  for (Complete& done : node_->take_complete()) {
    if (done.cached_id) {
      node_->sent_up(done.cached_id);
      ready.ids.push_back(done.cached_id);
      ready.last_ranks.push_back(done.last_rank);
    } else {
      send_ids();
      channels_.up->send(encode_ready_full(done.variants, done.last_rank));
    }
  }
  send_ids();
}

bool ControlNode::plan_if_due() {
  for (Complete& done : node_->take_complete()) {
    if (tuning_) note_for_tuning(done);
    coordinator_->accept(std::move(done));
  }
  if (!coordinator_->has_work()) return false;
  if (settings_.cycle_time > 0) {
    double now = now_s();
    if (now < next_plan_at_) return false;
    next_plan_at_ = now + settings_.cycle_time * 1e-3;
  }
  timeline_.cycle();
  Tuning tuning;
  if (tuning_) {
    tuning = tuning_->take_change();
    if (tuning.number) listener_.retune(tuning);  // here before the plan, whose batches it shapes
    if (tuning_->over()) tuning_.reset();
  }
  Plan plan = coordinator_->schedule();
  plan.tuning = std::move(tuning);
  if (coordinator_->has_evicted() && !std::exchange(warned_eviction_, true))
    HVD_LOG(Warning,
            "A response has been evicted from cache which may indicate reduced performance. Better performance may be "
            "obtained by disabling caching (HOROVOD_CACHE_CAPACITY=0) or increasing the cache capacity "
            "(HOROVOD_CACHE_CAPACITY>"
                << settings_.cache_capacity << ").");
  follow(plan, channels_.sources.size() > 1 ? encode_plan(plan) : "");
  return true;
}

void ControlNode::note_for_tuning(const Complete& complete) {
  auto cached = complete.cached_id ? node_->cached(complete.cached_id) : nullptr;
  if (cached) tuning_->ready(cached->description, cached->shares, now_s());
  else if (!complete.variants.empty())
    tuning_->ready(complete.variants.front().description, complete.variants.front().shares, now_s());
}

void ControlNode::follow(const Plan& plan, const std::string& encoded) {
  ++metrics_.plans;
  if (node_) {
    trace_planned(plan);
    node_->apply(plan);
    for (size_t s = 1; s < channels_.sources.size(); ++s) channels_.sources[s]->send(encoded);
    flush_down();
  }
  if (plan.tuning.number && !coordinator_) listener_.retune(plan.tuning);
  listener_.follow(plan);
}

// Nobody may start a batch before all below have been told of it: they are waited for inside.
void ControlNode::flush_down() {
  for (size_t s = 1; s < channels_.sources.size(); ++s)
    while (!channels_.sources[s]->flush()) {
      check_();
      usleep(20);
    }
}

// ----------------------------------------------------------------------------------- those who watch --

std::vector<Waiting> ControlNode::waiting(double before) const {
  return node_ ? node_->waiting(before) : std::vector<Waiting>{};
}

void ControlNode::report_partial(const Waiting& w, double now) {
  channels_.up->send(encode_partial({w.process_set, w.name, now - w.since, {w.ready.begin(), w.ready.end()}}));
}

void ControlNode::trace_ready(const std::vector<uint32_t>& ids) {
  if (!coordinator_ || !timeline_.active()) return;
  for (uint32_t id : ids)
    if (auto entry = node_->cached(id)) timeline_.negotiate_begin(described(entry));
}

void ControlNode::trace_ready(const std::vector<Variant>& variants) {
  if (!coordinator_ || !timeline_.active()) return;
  for (const Variant& v : variants) {
    auto what = std::make_shared<const Description>(v.description);
    timeline_.negotiate_begin(what);
    for (const Share& s : v.shares) timeline_.ready(what, s.rank);
  }
}

void ControlNode::trace_planned(const Plan& plan) {
  if (!coordinator_ || !timeline_.active()) return;
  for (const Batch& batch : plan.batches)
    for (const PlannedTensor& t : batch.tensors) {
      if (t.full) timeline_.negotiate_end(std::make_shared<const Description>(t.value.description), batch.last_rank);
      else if (auto entry = node_->cached(t.id)) timeline_.negotiate_end(described(entry), batch.last_rank);
    }
}

}  // namespace hvd
