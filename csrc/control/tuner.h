// SPDX-License-Identifier: Apache-2.0
// The search for better settings: told how fast each step was, says with what to run the next.
//
//   warm up   samples that do not count
//   search    where it started, the defaults, two other levels of each knob alone, then wherever a Gaussian process
//             expects most. A sample is a few steps and counts by their median; one that is hopeless ends after a step
//   verify    start and best in turns; the best stays only if it is clearly better
//
// Pure: no clock, no names. A knob is a number of levels, a point has one level of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace hvd {

class Tuner {
 public:
  using Point = std::vector<int>;

  struct Space {
    std::vector<int> levels;  // how many each knob has
    Point start;              // what the job began with
    Point defaults;
  };
  struct Options {
    int warmup_samples = 3;
    int steps_per_sample = 10;
    int max_samples = 20;  // of the search
    double noise = 0.8;    // see GaussianProcess
  };
  enum class Phase { kWarmUp, kSearch, kVerify, kDone };

  struct Observation {
    Phase phase;
    Point point;
    double score;  // median of its steps
    int steps;
  };

  Tuner(Space space, Options options);

  // A step ended, this fast (bytes a second, or anything of which more is better).
  void step(double rate);

  // What the next step should run with. Once done: for good.
  const Point& now() const { return now_; }
  Phase phase() const { return phase_; }
  bool done() const { return phase_ == Phase::kDone; }
  // Samples that have ended, in order.
  const std::vector<Observation>& observations() const { return observations_; }

  // Once done: how fast it was at the start and is now, measured in turns. Equal if the start was kept.
  double before() const { return before_; }
  double after() const { return after_; }
  // The most steps that all of it can take.
  int64_t most_steps() const;

 private:
  void end_sample(double score);
  void next_of_search();
  bool next_probe();
  bool next_guess();
  void begin_verification();
  void judge();
  void settle(const Point& point);
  bool hopeless() const;
  int verification_rounds() const;
  std::vector<double> place(const Point& point) const;

  const Space space_;
  const Options options_;
  Phase phase_ = Phase::kWarmUp;
  Point now_;
  std::vector<double> rates_;  // steps of the sample under way
  int samples_ = 0;            // of this phase
  std::vector<Observation> observations_;
  std::map<Point, double> scores_;  // of the search
  Point best_;
  double best_score_ = 0;
  double best_slowest_ = 0;
  size_t probe_ = 0;                        // next of the probes
  std::vector<double> of_start_, of_best_;  // steps of the verification
  double before_ = 0;
  double after_ = 0;
};

// Whether b's steps are faster than a's by more than chance and by enough to matter.
bool clearly_faster(const std::vector<double>& b, const std::vector<double>& a);

}  // namespace hvd
