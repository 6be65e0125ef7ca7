// SPDX-License-Identifier: Apache-2.0
//
// Where ranks meet that do not meet by the short way, in tests of it.
#ifndef HOROVOD_TESTS_OTHER_WAY_H_
#define HOROVOD_TESTS_OTHER_WAY_H_

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>

namespace hvd::testing {

class OtherWay {
 public:
  explicit OtherWay(int ranks) : ranks_(ranks) {}

  // Waits for all to come to this call; `meanwhile` runs now and then. False: the others did not come this way.
  template <typename Meanwhile>
  bool meet(int call, Meanwhile meanwhile) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    std::unique_lock<std::mutex> lock(mutex_);
    ++here_[call];
    changed_.notify_all();
    while (here_[call] < ranks_) {
      if (std::chrono::steady_clock::now() > end) return false;
      lock.unlock();
      meanwhile();
      lock.lock();
      if (here_[call] < ranks_) changed_.wait_for(lock, std::chrono::microseconds(200));
    }
    return true;
  }
  int calls() const { return static_cast<int>(here_.size()); }

 private:
  const int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, int> here_;
};

}  // namespace hvd::testing

#endif  // HOROVOD_TESTS_OTHER_WAY_H_
