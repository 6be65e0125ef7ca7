// SPDX-License-Identifier: Apache-2.0
// Streams and events of the stand-in for the driver. Each stream has a thread, which begins what it is given a little
// late, and knows of other streams only what events tell it: work that is not ordered by an event does run out of
// order, and a thread sanitizer sees it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

namespace hvd::standin {

// Shared by all streams: pausing, and how late they are.
struct Tempo {
  std::atomic<bool> paused{false};
  std::atomic<int> delay_us{50};
};
Tempo& tempo();

// One recording of an event. Whoever waits for it is not concerned with later recordings, on whatever stream.
class Moment {
 public:
  void reach();
  void wait();
  // By a clock that only grows; of a moment that was reached.
  double at() const { return at_; }
  bool reached() const { return reached_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> reached_{false};
  double at_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

class StreamState {
 public:
  explicit StreamState(unsigned seed);
  ~StreamState();
  void add(std::function<void()> work);
  bool idle();
  void drain();

 private:
  void run(unsigned seed);
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hvd::standin
