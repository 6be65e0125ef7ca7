// SPDX-License-Identifier: Apache-2.0
//
// The search on landscapes that the test knows, with noise as strong as the test wants: there is no clock here.
#include "control/tuner.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "tests/check.h"

using namespace hvd;

namespace {

using Landscape = std::function<double(const Tuner::Point&)>;

// As many levels as the engine's knobs have.
Tuner::Space space(Tuner::Point start) { return {{7, 4, 8, 4, 5}, std::move(start), {6, 0, 0, 2, 0}}; }

struct Run {
  int steps = 0;
  std::map<Tuner::Point, int> steps_at;  // outside of the verification
  double verdict = 0;                    // the true rate of what was chosen
};

// noise: of each step, as a share of its rate. drift: by how much everything has changed at the end.
Run run(Tuner& tuner, const Landscape& rate, double noise, unsigned seed, double drift = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> error(0, noise);
  Run result;
  while (!tuner.done() && result.steps < 10000) {
    const double share = double(result.steps) / double(tuner.most_steps());
    if (tuner.phase() == Tuner::Phase::kSearch) ++result.steps_at[tuner.now()];
    ++result.steps;
    tuner.step(rate(tuner.now()) * std::exp(error(random)) * std::pow(drift, share));
  }
  result.verdict = rate(tuner.now());
  return result;
}

double flat(const Tuner::Point&) { return 100; }

// Each knob has a best level of its own and costs so much a level away from it.
Landscape hill(Tuner::Point best, double cost) {
  return [best = std::move(best), cost](const Tuner::Point& p) {
    double rate = 1000;
    for (size_t k = 0; k < p.size(); ++k) rate *= std::pow(1 - cost, std::abs(p[k] - best[k]));
    return rate;
  };
}

}  // namespace

TEST(a_planted_bad_level_is_found_in_each_knob) {
  const Tuner::Point defaults{6, 0, 0, 2, 0};
  for (size_t knob = 0; knob < defaults.size(); ++knob)
    for (unsigned seed = 0; seed < 50; ++seed) {
      const testing::Case c("knob", knob, "seed", seed);
      Tuner::Point start = defaults;
      start[knob] = start[knob] == 0 ? 1 : 0;
      const auto planted = [&](const Tuner::Point& p) { return p[knob] == start[knob] ? 10.0 : 100.0; };
      Tuner tuner(space(start), {});
      const Run result = run(tuner, planted, 0.2, seed);
      CHECK_EQ(result.verdict, 100.0);
      CHECK(tuner.after() > 3 * tuner.before());
    }
}

TEST(two_bad_levels_at_once_are_found) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const testing::Case c("seed", seed);
    Tuner tuner(space({0, 0, 1, 2, 0}), {});
    const auto planted = [](const Tuner::Point& p) { return (p[0] == 0 ? 0.2 : 1) * (p[2] == 1 ? 0.3 : 1) * 100.0; };
    CHECK_EQ(run(tuner, planted, 0.1, seed).verdict, 100.0);
  }
}

TEST(bad_defaults_are_found_too) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const testing::Case c("seed", seed);
    Tuner tuner(space({6, 0, 0, 2, 0}), {});
    const Landscape best_elsewhere = hill({2, 0, 4, 2, 3}, 0.12);
    const Run result = run(tuner, best_elsewhere, 0.03, seed);
    CHECK(result.verdict > 1.3 * best_elsewhere({6, 0, 0, 2, 0}));
  }
}

TEST(it_never_ends_worse_than_it_began) {
  int kept = 0;
  for (double noise : {0.0, 0.05, 0.3, 1.0})
    for (double drift : {1.0, 0.3, 3.0})
      for (unsigned seed = 0; seed < 100; ++seed) {
        const testing::Case c("noise", noise, "drift", drift, "seed", seed);
        const Tuner::Point start{6, 0, 0, 2, 0};
        // Every other level of a knob is 15% worse: whatever it takes for better is chance.
        const auto worse = [&](const Tuner::Point& p) { return p == start ? 100.0 : 85.0; };
        Tuner tuner(space(start), {});
        kept += run(tuner, worse, noise, seed, drift).verdict == 100.0;
      }
  CHECK(kept >= 1190);  // of 1,200; the noise of 100% a step may deceive a few
}

TEST(where_nothing_matters_the_start_is_kept_nearly_always) {
  int kept = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    const Tuner::Point start{3, 1, 5, 1, 2};
    Tuner tuner(space(start), {});
    run(tuner, flat, 0.1, seed);
    kept += tuner.now() == start;
  }
  CHECK(kept >= 180);
}

TEST(a_disaster_costs_one_step) {
  const Tuner::Point start{6, 0, 0, 2, 0};
  const auto cliff = [&](const Tuner::Point& p) { return p == start ? 100.0 : 1.0; };
  Tuner tuner(space(start), {});
  const Run result = run(tuner, cliff, 0.1, 1);
  CHECK(result.steps_at.size() > 5);
  for (const auto& [point, steps] : result.steps_at) CHECK_EQ(steps, point == start ? 10 : 1);
  CHECK_EQ(result.verdict, 100.0);
}

TEST(its_options_mean_what_they_say) {
  const Tuner::Point start{6, 0, 0, 2, 0};
  Tuner::Options options{2, 4, 7, 0.8};
  Tuner tuner(space(start), options);
  const Run result = run(tuner, hill({2, 0, 4, 2, 3}, 0.05), 0.01, 1);
  std::map<Tuner::Phase, int> samples;
  for (const Tuner::Observation& seen : tuner.observations()) ++samples[seen.phase];
  CHECK_EQ(samples[Tuner::Phase::kWarmUp], 2);
  CHECK_EQ(samples[Tuner::Phase::kSearch], 7);
  CHECK_EQ(samples[Tuner::Phase::kVerify], 6);
  CHECK(result.steps <= tuner.most_steps());
  for (const Tuner::Observation& seen : tuner.observations()) CHECK(seen.steps <= 4);

  Tuner nothing(space(start), {3, 10, 0, 0.8});
  CHECK(nothing.done() && nothing.now() == start);
  Tuner no_choice({{1, 1}, {0, 0}, {0, 0}}, {});
  CHECK(no_choice.done());
  Tuner no_knob({{}, {}, {}}, {});
  CHECK(no_knob.done());
}

TEST(the_warm_up_does_not_count) {
  // The first steps of a job are slow: a search that believed them would take anything after them for better.
  const Tuner::Point start{6, 0, 0, 2, 0};
  Tuner tuner(space(start), {});
  for (int i = 0; i < 30; ++i) tuner.step(1);
  CHECK(tuner.phase() == Tuner::Phase::kSearch && tuner.now() == start);
  run(tuner, flat, 0, 1);
  CHECK(tuner.now() == start);
  CHECK_EQ(tuner.before(), 100.0);
}

TEST(clearly_faster_is_more_than_chance) {
  std::vector<double> slow;
  for (int i = 0; i < 12; ++i) slow.push_back(100 + i);
  const auto plus = [&](double more) {
    std::vector<double> all = slow;
    for (double& one : all) one += more;
    return all;
  };
  CHECK(clearly_faster(plus(15), slow));
  auto with_one_slow = plus(15);
  with_one_slow[3] = 10;
  CHECK(clearly_faster(with_one_slow, slow));
  CHECK(!clearly_faster(plus(1), slow));  // not enough to matter
  CHECK(!clearly_faster(plus(-15), slow));
  CHECK(!clearly_faster({60, 70, 150, 200, 90, 300}, slow));  // not sure
  CHECK(!clearly_faster(slow, slow));
  CHECK(!clearly_faster({200}, {100}));  // too few to tell
}
