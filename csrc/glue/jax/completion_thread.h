/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread that completes XLA futures.
 *
 * Completing a future runs whatever XLA has queued behind it, which can be the rest of the user's program.
 * That must not happen on the engine's thread: it would stop this rank from answering the others.
 */
#ifndef HOROVOD_GLUE_JAX_COMPLETION_THREAD_H_
#define HOROVOD_GLUE_JAX_COMPLETION_THREAD_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace hvd::jax {

class CompletionThread {
 public:
  /* Started on first use and never joined: XLA's own threads outlive static destruction as well. */
  static CompletionThread& instance();

  void post(std::function<void()> task);

 private:
  CompletionThread();
  [[noreturn]] void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
};

}  // namespace hvd::jax

#endif  // HOROVOD_GLUE_JAX_COMPLETION_THREAD_H_
