// SPDX-License-Identifier: Apache-2.0
// What autotune says and writes on rank 0: the table of samples, the file for --config-file, one line at the end.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "control/tuner.h"
#include "util/settings.h"
#include "world/topology.h"

namespace hvd {

class TuningReport {
 public:
  struct Outcome {
    double before;  // bytes a second
    double after;
    int64_t steps;
    int64_t step_bytes;
  };

  TuningReport(const Topology& topology, const Settings& start);

  // settings: with which the sample ran.
  void observed(const Tuner::Observation& sample, const Settings& settings);
  void finished(const Settings& settings, const Outcome& outcome);
  void unfinished(int64_t steps, int64_t most_steps);

 private:
  void row(const Settings& settings, double score, const std::string& phase, int64_t steps);
  // Returns "", or why the file could not be written.
  std::string write_config(const Settings& settings, const Outcome& outcome) const;
  void say(const std::string& text) const;

  const Topology& topology_;
  const Settings start_;
  std::ofstream table_;
};

}  // namespace hvd
