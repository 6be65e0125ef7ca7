// SPDX-License-Identifier: Apache-2.0
#include "control/tuner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "control/gaussian_process.h"

namespace hvd {
namespace {

// A sample is given up when its steps are slower than this share of the slowest step of the best one.
constexpr double kHopeless = 0.5;
// Standard deviations: chance alone comes so far in one of a hundred cases.
constexpr double kSure = 2.33;
// Less is not worth another setting.
constexpr double kLeastGain = 1.02;
// The search ends when less than this is to be expected, as a share of the rate.
constexpr double kLeastHope = 0.005;
// Of a range of levels: how far what is known about one tells of another.
constexpr double kLength = 0.4;
// How much worse than the best a sample counts at most (a logarithm): one disaster must not blur all the others.
constexpr double kWorst = 1.0;
// The verification compares at least this many steps of each.
constexpr int kVerifySteps = 12;
constexpr int kVerifyRounds = 3;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

bool clearly_faster(const std::vector<double>& b, const std::vector<double>& a) {
  // The rank sum test of Wilcoxon, Mann and Whitney: how often is one of b faster than one of a?
  double wins = 0;
  for (double x : b)
    for (double y : a) wins += x > y ? 1 : x == y ? 0.5 : 0;
  auto n = static_cast<double>(a.size());
  auto m = static_cast<double>(b.size());
  double deviation = std::sqrt(n * m * (n + m + 1) / 12);
  return wins - n * m / 2 > kSure * deviation && median(b) >= kLeastGain * median(a);
}

Tuner::Tuner(Space space, Options options)
    : space_(std::move(space)), options_(options), now_(space_.start), best_(space_.start) {
  bool choice = std::any_of(space_.levels.begin(), space_.levels.end(), [](int n) { return n > 1; });
  if (!choice || options_.max_samples < 1) phase_ = Phase::kDone;
  else if (options_.warmup_samples < 1) phase_ = Phase::kSearch;
}

int Tuner::verification_rounds() const {
  int steps = std::max(options_.steps_per_sample, 1);
  return std::max(kVerifyRounds, (kVerifySteps + steps - 1) / steps);
}

int64_t Tuner::most_steps() const {
  int64_t samples = options_.warmup_samples + options_.max_samples + 2 * verification_rounds();
  return samples * std::max(options_.steps_per_sample, 1);
}

bool Tuner::hopeless() const {
  return phase_ == Phase::kSearch && now_ != space_.start && median(rates_) < kHopeless * best_slowest_;
}

void Tuner::step(double rate) {
  if (done()) return;
  rates_.push_back(rate);
  if (static_cast<int>(rates_.size()) < options_.steps_per_sample && !hopeless()) return;
  double score = median(rates_);
  observations_.push_back({phase_, now_, score, static_cast<int>(rates_.size())});
  end_sample(score);
  rates_.clear();
}

void Tuner::end_sample(double score) {
  ++samples_;
  if (phase_ == Phase::kWarmUp) {
    if (samples_ < options_.warmup_samples) return;
    phase_ = Phase::kSearch;
    samples_ = 0;
  } else if (phase_ == Phase::kSearch) {
    scores_[now_] = score;
    if (score > best_score_) {
      best_score_ = score;
      best_slowest_ = *std::min_element(rates_.begin(), rates_.end());
      best_ = now_;
    }
    next_of_search();
  } else {
    auto& steps = now_ == space_.start ? of_start_ : of_best_;
    steps.insert(steps.end(), rates_.begin(), rates_.end());
    if (samples_ == 2 * verification_rounds()) judge();
    else now_ = now_ == space_.start ? best_ : space_.start;
  }
}

void Tuner::next_of_search() {
  if (samples_ >= options_.max_samples) return begin_verification();
  if (!scores_.count(space_.defaults)) {
    now_ = space_.defaults;
    return;
  }
  if (!next_probe() && !next_guess()) begin_verification();
}

// Each knob alone, at a quarter and at three quarters of its range, beside the best of what was tried before.
bool Tuner::next_probe() {
  while (probe_ < 2 * space_.levels.size()) {
    size_t knob = probe_ / 2;
    int last = space_.levels[knob] - 1;
    Point point = best_;
    point[knob] = static_cast<int>(std::lround(last * (probe_ % 2 == 0 ? 0.75 : 0.25)));
    ++probe_;
    if (scores_.count(point)) continue;
    now_ = point;
    return true;
  }
  return false;
}

std::vector<double> Tuner::place(const Point& point) const {
  std::vector<double> place;
  for (size_t k = 0; k < point.size(); ++k)
    place.push_back(space_.levels[k] > 1 ? static_cast<double>(point[k]) / (space_.levels[k] - 1) : 0);
  return place;
}

// Among what differs from the best in one knob or two.
bool Tuner::next_guess() {
  std::vector<GaussianProcess::Place> places;
  std::vector<double> values;
  double best = std::log(std::max(best_score_, 1e-30));
  for (const auto& [point, score] : scores_) {
    places.push_back(place(point));
    values.push_back(std::max(std::log(std::max(score, 1e-30)), best - kWorst));
  }
  GaussianProcess process(kLength, options_.noise);
  process.fit(std::move(places), values);

  double most = kLeastHope;
  bool found = false;
  auto consider = [&](const Point& point) {
    if (scores_.count(point)) return;
    double hope = expected_improvement(process.at(place(point)), best);
    if (hope <= most) return;
    most = hope;
    now_ = point;
    found = true;
  };
  size_t knobs = space_.levels.size();
  for (size_t a = 0; a < knobs; ++a)
    for (int i = 0; i < space_.levels[a]; ++i) {
      Point point = best_;
      point[a] = i;
      consider(point);
      for (size_t b = a + 1; b < knobs && i != best_[a]; ++b)
        for (int j = 0; j < space_.levels[b]; ++j) {
          point[b] = j;
          consider(point);
          point[b] = best_[b];
        }
    }
  return found;
}

void Tuner::begin_verification() {
  if (best_ == space_.start) {
    before_ = after_ = best_score_;
    return settle(space_.start);
  }
  phase_ = Phase::kVerify;
  samples_ = 0;
  now_ = space_.start;
}

void Tuner::judge() {
  before_ = median(of_start_);
  after_ = median(of_best_);
  if (clearly_faster(of_best_, of_start_)) return settle(best_);
  after_ = before_;
  settle(space_.start);
}

void Tuner::settle(const Point& point) {
  now_ = point;
  phase_ = Phase::kDone;
}

}  // namespace hvd
