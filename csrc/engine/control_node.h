// SPDX-License-Identifier: Apache-2.0
// This rank's place in the control tree: messages up ("ready here") and down (the plan).
//
// A rank that is no leader has a channel up and nothing else. A leader aggregates what its sources say, and rank 0
// coordinates. Driving thread only: nothing here is guarded.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "control/aggregator.h"
#include "control/channel.h"
#include "control/coordinator.h"
#include "control/message.h"
#include "engine/tuning_session.h"
#include "util/settings.h"
#include "watch/metrics.h"
#include "watch/timeline.h"
#include "world/topology.h"

namespace hvd {

class ControlNode {
 public:
  // What comes out of the tree, for this rank itself.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void follow(const Plan& plan) = 0;
    // Comes before follow() of the same plan.
    virtual void retune(const Tuning& tuning) = 0;
    // An id this rank announced is not known above any more: it has to be said in full.
    virtual void need_full(uint32_t id) = 0;
  };
  // sources[s]: leaders: the channel to source s, null for s = 0, which is this rank. up: null on rank 0.
  struct Channels {
    std::vector<std::unique_ptr<Channel>> sources;
    std::unique_ptr<Channel> up;
  };
  // `check` throws when the job is over; called while there is no room to send.
  ControlNode(const Topology& topology, const Settings& settings, Channels channels, Listener& listener,
              Timeline& timeline, Metrics& metrics, std::function<void()> check);

  // This rank has something to say.
  void say_ready(const std::vector<uint32_t>& ids);
  void say_ready(const Description& description, const Share& share);
  void say_joined();
  void say_shutdown(const std::string& reason);

  // Takes what has arrived and passes on what is complete; on rank 0 a plan may follow. True if anything moved.
  bool turn();
  // Something waits for room in a channel.
  bool has_backlog() const;
  // A leader knows of tensors that some ranks below have not submitted.
  bool somebody_waits() const { return node_ && !node_->idle(); }
  // Tensors that wait since before `before`; none except on leaders.
  std::vector<Waiting> waiting(double before) const;
  // Tells the leader above of a tensor that only some ranks below have submitted.
  void report_partial(const Waiting& waiting, double now);

  // To be polled for input.
  std::vector<int> sockets() const;

 private:
  bool receive();
  void from_source(int source, MessageType type, std::string_view body);
  void from_parent(MessageType type, std::string_view body);
  void pass_up();
  void joined(int rank);
  void pass_on(Departure departure);
  bool plan_if_due();
  void note_for_tuning(const Complete& complete);
  void follow(const Plan& plan, const std::string& encoded);
  void flush_down();
  // The timeline, on rank 0.
  void trace_ready(const std::vector<uint32_t>& ids);
  void trace_ready(const std::vector<Variant>& variants);
  void trace_planned(const Plan& plan);

  const Topology& topology_;
  const Settings& settings_;
  Channels channels_;
  Listener& listener_;
  Timeline& timeline_;
  Metrics& metrics_;
  const std::function<void()> check_;
  std::unique_ptr<Aggregator> node_;          // leaders
  std::unique_ptr<Coordinator> coordinator_;  // rank 0
  std::unique_ptr<TuningSession> tuning_;     // rank 0, while it lasts
  double next_plan_at_ = 0;
  bool warned_eviction_ = false;
};

// The ranks that speak through each source of a leader: itself, its host's other ranks, the leaders under it.
std::vector<std::vector<int>> ranks_of_sources(const Topology& topology);

}  // namespace hvd
