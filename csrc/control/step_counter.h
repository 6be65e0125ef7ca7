// SPDX-License-Identifier: Apache-2.0
// Where one step of training ends and the next begins, seen from the tensors: when a name comes back. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>

namespace hvd {

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
    bool again = names_.count(name) != 0 && bytes_ >= most_bytes_ / 2;
    if (again || names_.size() > kMostNames) {
      if (again && began_ >= 0) ended = Step{now - began_, bytes_};
      if (again && bytes_ > most_bytes_) most_bytes_ = bytes_;
      names_.clear();
      bytes_ = 0;
      began_ = now;
    }
    if (began_ < 0) began_ = now;
    names_.insert(name);
    bytes_ += bytes;
    return ended;
  }

 private:
  static constexpr size_t kMostNames = 1 << 16;
  std::unordered_set<std::string> names_;  // of this step
  int64_t bytes_ = 0;
  int64_t most_bytes_ = 0;  // of a step
  double began_ = -1;
};

}  // namespace hvd
