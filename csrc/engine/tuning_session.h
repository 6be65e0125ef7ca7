// SPDX-License-Identifier: Apache-2.0
// Autotune on rank 0: watches the steps of the job, asks the Tuner what to try, and says what came of it.
//
// Driving thread only. The other ranks know nothing of it: they take new values from the plan.
#pragma once

#include <memory>
#include <vector>

#include "control/knobs.h"
#include "control/message.h"
#include "control/step_counter.h"
#include "control/tuner.h"
#include "engine/tuning_report.h"
#include "util/settings.h"
#include "world/topology.h"

namespace hvd {

class TuningSession {
 public:
  TuningSession(const Topology& topology, const Settings& settings);
  // Says so if the job ends before the search has.
  ~TuningSession();

  // A tensor is ready on all ranks; it will be in the next plan.
  void ready(const Description& description, const std::vector<Share>& shares, double now);
  // What has to change before the next plan; number 0 if nothing has.
  Tuning take_change();
  // Nothing more will change.
  bool over() const { return tuner_ && tuner_->done() && reported_; }

 private:
  void begin();
  void report();
  Settings settings_at(const Tuner::Point& point) const;

  const Settings settings_;  // as the job began
  StepCounter steps_;
  int64_t steps_seen_ = 0;
  int64_t step_bytes_ = 0;
  bool host_memory_ = false;
  bool device_memory_ = false;
  std::vector<FreeKnob> knobs_;
  std::unique_ptr<Tuner> tuner_;  // once a step was seen
  Tuner::Point in_force_;
  uint32_t number_ = 0;
  TuningReport report_;
  size_t logged_ = 0;  // observations
  bool reported_ = false;
};

}  // namespace hvd
