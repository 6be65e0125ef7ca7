/* SPDX-License-Identifier: Apache-2.0 */
#include "completion_thread.h"

#include <pthread.h>

#include <thread>
#include <utility>

namespace hvd::jax {

CompletionThread& CompletionThread::instance() {
  static auto* thread = new CompletionThread;
  return *thread;
}

CompletionThread::CompletionThread() {
  std::thread worker([this] { run(); });
  pthread_setname_np(worker.native_handle(), "hvd-jax");
  worker.detach();
}

void CompletionThread::post(std::function<void()> task) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void CompletionThread::run() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [this] { return !tasks_.empty(); });
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace hvd::jax
