// SPDX-License-Identifier: Apache-2.0
// Where one step of training ends and the next begins, seen from the tensors: when a name comes back. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "control/message.h"
#include "horovod/core.h"

namespace hvd {

// Whether steps show in this tensor: gradients are reduced or gathered by all ranks.
inline bool belongs_to_steps(const Description& d) {
  return d.process_set == 0 && (d.kind == HVD_ALLREDUCE || d.kind == HVD_ALLGATHER || d.kind == HVD_REDUCESCATTER);
}

class StepCounter {
 public:
  struct Step {
    double seconds;
    int64_t bytes;
  };

  // A tensor is ready on all ranks. Returns the step that is over with it, if it is the first of the next.
  std::optional<Step> add(const std::string& name, int64_t bytes, double now) {
    std::optional<Step> ended;
    // Small things may come several times in a step (the loss, of each part of a batch): with them nothing begins. So
    // many names without one that comes back are no steps.
    auto [known, fresh] = last_step_of_.try_emplace(name, step_);
    bool again = !fresh && known->second == step_ && bytes_ >= most_bytes_ / 2;
    bool too_many = last_step_of_.size() > kMostNames;
    if (again || too_many) {
      if (again && began_ >= 0) ended = Step{now - began_, bytes_};
      if (again && bytes_ > most_bytes_) most_bytes_ = bytes_;
      ++step_;
      bytes_ = 0;
      began_ = now;
    }
    if (began_ < 0) began_ = now;
    if (too_many) last_step_of_.clear();
    else known->second = step_;
    bytes_ += bytes;
    return ended;
  }

 private:
  static constexpr size_t kMostNames = 1 << 16;
  std::unordered_map<std::string, uint64_t> last_step_of_;  // by name; kept, so that a usual step allocates nothing
  uint64_t step_ = 0;
  int64_t bytes_ = 0;
  int64_t most_bytes_ = 0;  // of a step
  double began_ = -1;
};

}  // namespace hvd
