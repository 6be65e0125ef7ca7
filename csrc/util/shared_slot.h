// SPDX-License-Identifier: Apache-2.0
// A shared_ptr that many threads read and few replace: std::atomic<std::shared_ptr>, which not every standard
// library has. The lock is held for the copy of one pointer.
#pragma once

#include <sched.h>

#include <atomic>
#include <memory>
#include <utility>

namespace hvd {

template <typename T>
class SharedSlot {
 public:
  std::shared_ptr<T> load() const {
    lock();
    std::shared_ptr<T> copy = value_;
    unlock();
    return copy;
  }

  void store(std::shared_ptr<T> value) {
    lock();
    value_.swap(value);  // the old value dies after unlock
    unlock();
  }

  // For a forked child, where the thread that held the lock may not exist any more.
  const std::shared_ptr<T>& unlocked() const { return value_; }

 private:
  void lock() const {
    while (busy_.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  void unlock() const { busy_.clear(std::memory_order_release); }

  mutable std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  std::shared_ptr<T> value_;
};

}  // namespace hvd
