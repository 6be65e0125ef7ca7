// SPDX-License-Identifier: Apache-2.0
//
// Autotune in whole jobs: every rank takes over the same values before the same batch, results stay right meanwhile,
// and what was found is written where it was asked for.
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>

#include "control/knobs.h"
#include "tests/check.h"
#include "tests/engine/gradient.h"
#include "tests/engine/job.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

// Serves nothing and hears of everything that a path hears of: settings that change.
class Listening : public DataPath {
 public:
  explicit Listening(std::vector<Settings>& heard) : heard_(heard) {}
  bool serves(int32_t, const SetLayout&) const override { return false; }
  void start(PlannedBatch&, BatchEnd&) override {}
  void abort(const std::string&) override {}
  void tune(const Settings& settings) override { heard_.push_back(settings); }

 private:
  std::vector<Settings>& heard_;
};

struct TunedJob {
  std::vector<std::vector<Settings>> heard;
  Job job;

  TunedJob(const std::vector<int>& locals, const Settings& settings)
      : heard(8), job(locals, settings, [this](int rank) {
          return std::vector<PathMaker>{
              [this, rank](HostPath&) { return std::make_unique<Listening>(heard[size_t(rank)]); }};
        }) {}

  // Steps of some tensors, small ones and one of more than a chunk. Every rank must know the sum.
  void train(int steps) {
    job.each([&](int rank) {
      const float sum = float(job.size() * (job.size() + 1) / 2);
      for (int step = 0; step < steps; ++step) {
        std::vector<Gradient> gradients;
        for (int i = 0; i < 6; ++i) gradients.emplace_back("g" + std::to_string(i), i ? 100 : 60000, float(rank + 1));
        std::vector<hvd_request> requests;
        for (Gradient& g : gradients) requests.push_back(g.request());
        Engine& engine = job.engine(rank);
        const int64_t handle = engine.submit(requests.data(), int32_t(requests.size()), 0, nullptr, nullptr, nullptr);
        const Status status = engine.wait(handle, 30);
        engine.release(handle);
        std::lock_guard<std::mutex> lock(mutex);
        CHECK_EQ(status.text, "");
        for (const Gradient& g : gradients) CHECK(g.all(sum));
      }
    });
  }
  std::mutex mutex;
};

Settings quick() {
  Settings settings;
  settings.autotune = true;
  settings.autotune_warmup_samples = 1;
  settings.autotune_steps_per_sample = 2;
  settings.autotune_bayes_opt_max_samples = 14;
  return settings;
}

std::string content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

size_t lines(const std::string& text) { return size_t(std::count(text.begin(), text.end(), '\n')); }

}  // namespace

TEST(every_rank_takes_over_the_same_values) {
  for (const auto& locals : std::vector<std::vector<int>>{{2}, {3}, {1, 1}, {2, 1}}) {
    const Case c("hosts", locals.size(), "ranks of the first", locals[0]);
    TunedJob tuned(locals, quick());
    tuned.train(70);
    const auto& first = tuned.heard[0];
    CHECK(first.size() > 10);  // the search has probed each knob
    for (int r = 1; r < tuned.job.size(); ++r) {
      const auto& other = tuned.heard[size_t(r)];
      CHECK_EQ(other.size(), first.size());
      for (size_t i = 0; i < std::min(first.size(), other.size()); ++i)
        for (const Knob& knob : knobs()) CHECK_EQ(get(other[i], knob), get(first[i], knob));
    }
  }
}

TEST(what_is_set_never_changes) {
  Settings settings = quick();
  settings.fusion_threshold = 12345;
  settings.spin_us = 7;
  settings.autotune_fixed = "fusion_threshold,spin_us";
  TunedJob tuned({2}, settings);
  tuned.train(70);
  CHECK(tuned.heard[0].size() > 5);
  for (const Settings& s : tuned.heard[0]) {
    CHECK_EQ(s.fusion_threshold, int64_t(12345));
    CHECK_EQ(s.spin_us, 7.0);
  }
}

TEST(it_stops_by_itself_and_writes_what_it_found) {
  Settings settings = quick();
  const std::string base = "/tmp/hvd-tuning-test-" + std::to_string(getpid());
  settings.autotune_log = base + ".csv";
  settings.autotune_output = base + ".yaml";
  {
    TunedJob tuned({2}, settings);
    tuned.train(70);
    const std::string table = content(settings.autotune_log);
    const std::string file = content(settings.autotune_output);
    CHECK(table.find("hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
                     "tensor_fusion_threshold,score,") == 0);
    CHECK(lines(table) > 10);
    CHECK(table.find(",best,") != std::string::npos);
    CHECK(file.find("params:\n  fusion_threshold_mb: ") != std::string::npos);
    CHECK(file.find("tuning:\n  chunk_bytes: ") != std::string::npos);
    const size_t changes = tuned.heard[0].size();
    tuned.train(30);
    CHECK_EQ(tuned.heard[0].size(), changes);
    CHECK_EQ(content(settings.autotune_log), table);
  }
  std::remove(settings.autotune_log.c_str());
  std::remove(settings.autotune_output.c_str());
}

TEST(off_or_alone_nothing_changes) {
  Settings off = quick();
  off.autotune = false;
  TunedJob not_asked({2}, off);
  not_asked.train(40);
  CHECK_EQ(not_asked.heard[0].size(), size_t(1));  // what it began with
  TunedJob alone({1}, quick());
  alone.train(40);
  CHECK_EQ(alone.heard[0].size(), size_t(1));
}
