// SPDX-License-Identifier: Apache-2.0
#include "tests/standin/streams.h"

#include <unistd.h>

#include <chrono>

namespace hvd::standin {

Tempo& tempo() {
  static auto* shared = new Tempo;
  return *shared;
}

void Moment::reach() {
  std::lock_guard<std::mutex> lock(mutex_);
  at_ = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  reached_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void Moment::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return reached(); });
}

StreamState::StreamState(unsigned seed) : thread_([this, seed] { run(seed); }) {}

StreamState::~StreamState() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void StreamState::add(std::function<void()> work) {
  std::lock_guard<std::mutex> lock(mutex_);
  work_.push_back(std::move(work));
  changed_.notify_all();
}

bool StreamState::idle() {
  std::lock_guard<std::mutex> lock(mutex_);
  return work_.empty() && !busy_;
}

void StreamState::drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return work_.empty() && !busy_; });
}

void StreamState::run(unsigned seed) {
  std::minstd_rand random(seed);
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !work_.empty(); });
    if (work_.empty()) return;
    std::function<void()> next = std::move(work_.front());
    work_.pop_front();
    busy_ = true;
    lock.unlock();
    int delay = tempo().delay_us;
    if (delay > 0 && random() % 4 == 0) usleep(random() % static_cast<unsigned>(delay));
    while (tempo().paused.load(std::memory_order_acquire)) usleep(100);
    next();
    next = nullptr;
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace hvd::standin
