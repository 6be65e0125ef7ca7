// SPDX-License-Identifier: Apache-2.0
// The steps of the training: those that somebody marks and, until the first of these, those that show in the tensors.
#pragma once

#include <atomic>
#include <mutex>

#include "control/message.h"
#include "control/step_counter.h"
#include "watch/metrics.h"
#include "watch/timeline.h"

namespace hvd {

class Steps {
 public:
  Steps(Metrics& metrics, Timeline& timeline) : metrics_(metrics), timeline_(timeline) {}

  // Somebody says that a step is done. Any thread.
  void mark();
  // A tensor of all ranks begins to move: if it was there before, a step ended with the last that moved before it. The
  // driving thread.
  void begins(const Description& tensor, int64_t bytes, double now) {
    if (!marked_.load(std::memory_order_relaxed)) look_at(tensor, bytes, now);
  }
  // Something has moved. Any thread.
  void moved(double now) { last_moved_.store(now, std::memory_order_relaxed); }

 private:
  void look_at(const Description& tensor, int64_t bytes, double now);

  Metrics& metrics_;
  Timeline& timeline_;
  StepCounter counter_;                // the driving thread's
  std::atomic<double> last_moved_{0};  // when
  std::atomic<bool> marked_{false};    // by somebody, once: nothing is inferred any more
  std::mutex mutex_;                   // who writes steps
};

}  // namespace hvd
