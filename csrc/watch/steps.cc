// SPDX-License-Identifier: Apache-2.0
#include "watch/steps.h"

#include <algorithm>

#include "util/clock.h"

namespace hvd {

void Steps::mark() {
  std::lock_guard<std::mutex> lock(mutex_);
  marked_ = true;
  double now = now_s();
  metrics_.step(now);
  timeline_.step(metrics_.steps.load(), now, false);
}

void Steps::look_at(const Description& tensor, int64_t bytes, double now) {
  if (!belongs_to_steps(tensor)) return;
  double last = last_moved_.load(std::memory_order_relaxed);
  if (!counter_.add(tensor.name, bytes, now)) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (marked_) return;
  double ended = last > 0 ? std::min(last, now) : now;
  metrics_.step(ended);
  timeline_.step(metrics_.steps.load(), ended, true);
}

}  // namespace hvd
