// SPDX-License-Identifier: Apache-2.0
// What the time of a batch went into, noted only while somebody traces: who does not want it passes null.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "util/clock.h"

namespace hvd {

enum class Phase { Pack, Reduce, Wire, Unpack };
constexpr size_t kPhases = 4;
constexpr std::array<const char*, kPhases> kPhaseNames = {"PACK", "REDUCE", "WIRE", "UNPACK"};

struct PhaseSpan {
  Phase phase;
  double from, to;
};

class Phases {
 public:
  static constexpr size_t kMost = 48;  // spans of a batch; of a longer one, only the sums are told

  void clear() {
    spans_.clear();
    sums_.fill(0);
    count_ = 0;
  }
  void add(Phase phase, double from, double to) {
    if (count_++ < kMost) spans_.push_back({phase, from, to});
    sums_[static_cast<size_t>(phase)] += to - from;
  }
  // In order. A batch of too many chunks has one span for each phase, as long as all of that phase, laid end to end.
  std::vector<PhaseSpan> told(double started) const {
    if (count_ <= kMost) return spans_;
    std::vector<PhaseSpan> sums;
    for (size_t i = 0; i < kPhases; ++i) {
      if (sums_[i] <= 0) continue;
      sums.push_back({static_cast<Phase>(i), started, started + sums_[i]});
      started += sums_[i];
    }
    return sums;
  }

 private:
  std::vector<PhaseSpan> spans_;
  std::array<double, kPhases> sums_{};
  size_t count_ = 0;
};

// From here to the end of the scope.
class InPhase {
 public:
  InPhase(Phases* phases, Phase phase) : phases_(phases), phase_(phase), from_(phases ? now_s() : 0) {}
  ~InPhase() {
    if (phases_) phases_->add(phase_, from_, now_s());
  }
  InPhase(const InPhase&) = delete;
  InPhase& operator=(const InPhase&) = delete;

 private:
  Phases* const phases_;
  const Phase phase_;
  const double from_;
};

}  // namespace hvd
