// SPDX-License-Identifier: Apache-2.0
#include "engine/tuning_report.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <locale>
#include <map>
#include <utility>
#include <vector>

#include "control/knobs.h"
#include "util/log.h"

namespace hvd {
namespace {

constexpr double kMib = 1 << 20;

const char* phase_name(Tuner::Phase phase) {
  switch (phase) {
    case Tuner::Phase::kWarmUp: return "warmup";
    case Tuner::Phase::kSearch: return "search";
    case Tuner::Phase::kVerify: return "verify";
    default: return "best";
  }
}

std::string rounded(double value, int digits) {
  char text[64];
  auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, digits).ptr;
  return {text, end};
}

// Megabytes a second: bytes a microsecond.
std::string speed(double bytes_a_second) { return rounded(bytes_a_second / 1e6, 1); }

}  // namespace

TuningReport::TuningReport(const Topology& topology, const Settings& start) : topology_(topology), start_(start) {
  if (start.autotune_log.empty()) return;
  table_.imbue(std::locale::classic());
  bool first = topology.generation <= 1;  // elastic jobs tune again after a change, into the same file
  table_.open(start.autotune_log, first ? std::ios::trunc : std::ios::app);
  if (!table_) {
    HVD_LOG(Error, "[" << topology.rank << "]: cannot write the log of autotune to " << start.autotune_log);
    return;
  }
  if (first || table_.tellp() == 0)
    table_ << "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
              "tensor_fusion_threshold,score,chunk_bytes,small_bytes,spin_us,gpu_direct_bytes,ranks,phase,steps\n"
           << std::flush;
}

void TuningReport::row(const Settings& s, double score, const std::string& phase, int64_t steps) {
  if (!table_.is_open()) return;
  int between_hosts = topology_.hosts() > 1;
  table_ << between_hosts << "," << between_hosts << ",0, " << (s.cache_capacity > 0) << ","
         << number_text(s.cycle_time) << "," << number_text(static_cast<double>(s.fusion_threshold) / kMib) << ","
         << number_text(score / 1e6) << "," << s.chunk_bytes << "," << s.small_bytes << "," << number_text(s.spin_us)
         << "," << s.gpu_direct_bytes << "," << topology_.size << "," << phase << "," << steps << "\n"
         << std::flush;
}

void TuningReport::observed(const Tuner::Observation& sample, const Settings& settings) {
  row(settings, sample.score, phase_name(sample.phase), sample.steps);
  if (!log_enabled(LogLevel::Info)) return;
  std::string values;
  for (const Knob& knob : knobs()) values += std::string(knob.setting) + "=" + number_text(get(settings, knob)) + ", ";
  HVD_LOG(Info, "Autotuner: " << phase_name(sample.phase) << " [" << values.substr(0, values.size() - 2) << "] "
                              << speed(sample.score) << " MB/s over " << sample.steps << " steps");
}

void TuningReport::finished(const Settings& settings, const Outcome& outcome) {
  row(settings, outcome.after, "best", outcome.steps);
  std::string changes;
  for (const Knob& knob : knobs())
    if (get(settings, knob) != get(start_, knob))
      changes += (changes.empty() ? "" : ", ") + std::string(knob.setting) + " " + number_text(get(start_, knob)) +
                 " -> " + number_text(get(settings, knob));
  auto milliseconds = [&](double rate) {
    return rounded(static_cast<double>(outcome.step_bytes) / std::max(rate, 1e-9) * 1e3, 2) + " ms a step";
  };
  std::string text = "autotune, after " + std::to_string(outcome.steps) + " steps: ";
  if (changes.empty())
    text += "nothing was clearly better than what the job started with (" + speed(outcome.before) + " MB/s)";
  else
    text += speed(outcome.before) + " MB/s before (" + milliseconds(outcome.before) + "), " + speed(outcome.after) +
            " MB/s now (" + milliseconds(outcome.after) + "), +" +
            rounded((outcome.after / std::max(outcome.before, 1e-9) - 1) * 100, 0) + "%, with " + changes;
  if (!start_.autotune_output.empty()) {
    std::string problem = write_config(settings, outcome);
    text += problem.empty() ? "; for --config-file: " + start_.autotune_output : "; " + problem;
  }
  say(text);
}

void TuningReport::unfinished(int64_t steps, int64_t most_steps) {
  if (steps == 0)
    return say(
        "autotune saw no steps: a step is over when a tensor of the global process set comes back under the same name, "
        "and unnamed ones do not");
  say("autotune had no time to finish: the job ended after " + std::to_string(steps) + " of up to " +
      std::to_string(most_steps) + " steps");
}

std::string TuningReport::write_config(const Settings& settings, const Outcome& outcome) const {
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> sections;
  for (const Knob& knob : knobs())
    sections[knob.section].emplace_back(knob.key, number_text(get(settings, knob) / knob.unit));
  std::ofstream file(start_.autotune_output, std::ios::trunc);
  file << "# Found by autotune on " << topology_.size << " ranks on " << topology_.hosts()
       << " hosts: " << speed(outcome.before) << " MB/s before, " << speed(outcome.after) << " MB/s with these.\n"
       << "# Use: horovodrun --config-file " << start_.autotune_output << "\n";
  for (const auto& [section, entries] : sections) {
    file << section << ":\n";
    for (const auto& [key, value] : entries) file << "  " << key << ": " << value << "\n";
  }
  file.close();
  return file ? "" : "the settings could not be written to " + start_.autotune_output;
}

// Whoever asked for autotune wants to know, at any level of the log.
void TuningReport::say(const std::string& text) const {
  std::string line = "horovod: " + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

}  // namespace hvd
