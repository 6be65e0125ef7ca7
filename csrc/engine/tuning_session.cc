// SPDX-License-Identifier: Apache-2.0
#include "engine/tuning_session.h"

#include <algorithm>

namespace hvd {
namespace {

// The work of a guess grows with the cube of the samples: with so many it takes a millisecond or two.
constexpr int kMostSamples = 100;

}  // namespace

TuningSession::TuningSession(const Topology& topology, const Settings& settings)
    : settings_(settings), report_(topology, settings) {}

TuningSession::~TuningSession() {
  if (!over()) report_.unfinished(steps_seen_, tuner_ ? tuner_->most_steps() : 0);
}

void TuningSession::ready(const Description& d, const std::vector<Share>& shares, double now) {
  if (!belongs_to_steps(d) || (tuner_ && tuner_->done())) return;
  (d.device < 0 ? host_memory_ : device_memory_) = true;
  auto step = steps_.add(d.name, payload_bytes(d, shares), now);
  if (!step) return;
  if (!tuner_) begin();
  ++steps_seen_;
  step_bytes_ = step->bytes;
  tuner_->step(static_cast<double>(step->bytes) / std::max(step->seconds, 1e-9));
}

void TuningSession::begin() {
  knobs_ = free_knobs(settings_, host_memory_, device_memory_);
  Tuner::Space space;
  for (const FreeKnob& free : knobs_) {
    space.levels.push_back(static_cast<int>(free.levels.size()));
    space.start.push_back(free.start);
    space.defaults.push_back(free.preset);
  }
  in_force_ = space.start;
  auto count = [](int64_t given, int64_t least, int64_t most) {
    return static_cast<int>(std::min(std::max(given, least), most));
  };
  Tuner::Options options;
  options.warmup_samples = count(settings_.autotune_warmup_samples, 0, 1 << 20);
  options.steps_per_sample = count(settings_.autotune_steps_per_sample, 1, 1 << 20);
  options.max_samples = count(settings_.autotune_bayes_opt_max_samples, 0, kMostSamples);
  options.noise = settings_.autotune_gaussian_process_noise;
  tuner_ = std::make_unique<Tuner>(std::move(space), options);
}

Settings TuningSession::settings_at(const Tuner::Point& point) const {
  Settings settings = settings_;
  for (size_t k = 0; k < knobs_.size(); ++k)
    put(settings, *knobs_[k].knob, knobs_[k].levels[static_cast<size_t>(point[k])]);
  return settings;
}

Tuning TuningSession::take_change() {
  Tuning tuning;
  if (!tuner_) return tuning;
  report();
  if (tuner_->now() == in_force_) return tuning;
  tuning.number = ++number_;
  for (size_t k = 0; k < knobs_.size(); ++k)
    if (tuner_->now()[k] != in_force_[k])
      tuning.values.emplace_back(knobs_[k].knob->setting, knobs_[k].levels[static_cast<size_t>(tuner_->now()[k])]);
  in_force_ = tuner_->now();
  return tuning;
}

void TuningSession::report() {
  for (; logged_ < tuner_->observations().size(); ++logged_) {
    const Tuner::Observation& seen = tuner_->observations()[logged_];
    report_.observed(seen, settings_at(seen.point));
  }
  if (!tuner_->done() || reported_) return;
  reported_ = true;
  report_.finished(settings_at(tuner_->now()), {tuner_->before(), tuner_->after(), steps_seen_, step_bytes_});
}

}  // namespace hvd
