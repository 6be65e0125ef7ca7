// SPDX-License-Identifier: Apache-2.0
//
// Finishing an asynchronous kernel after its compute function has returned.
//
// TensorFlow hands a C kernel the address of a std::function that lives in its caller's frame: the pointer
// dangles as soon as the kernel returns, so keeping it crashes. The function object itself can be moved out
// while it is alive. libstdc++ lays it out as 16 bytes of storage, a manager and an invoker, and stores only
// trivially copyable callables in place, so a bitwise move is what its own move does. The move is made only
// when both code pointers lie inside TensorFlow's own code; otherwise the kernel has to wait.
#pragma once

#include <condition_variable>
#include <mutex>

#include "glue/tensorflow/tf_api.h"

namespace horovod::tensorflow {

// A value: copies stand for the same callback, and one of them is run, once.
class DeferredDone {
 public:
  DeferredDone() = default;
  // Takes the callback over. `can_defer()` tells whether the kernel may return before run().
  explicit DeferredDone(TF_AsyncOpKernelDoneCallback* done);

  bool can_defer() const { return !waiting_; }
  // Tells TensorFlow that the kernel is finished; once, from any thread.
  void run();
  // Blocks the calling thread until run(), then tells TensorFlow. Only when !can_defer().
  void block_until_run();

 private:
  struct FunctionObject {  // std::function<void()> of libstdc++
    void* storage[2];
    bool (*manage)(void*, const void*, int);
    void (*invoke)(const void*);
  };
  struct Waiting {
    TF_AsyncOpKernelDoneCallback* original;
    std::mutex mutex;
    std::condition_variable changed;
    bool finished = false;
  };
  FunctionObject function_{};
  Waiting* waiting_ = nullptr;  // where the callback could not be moved; block_until_run() frees it
};

// Whether the last callback seen could be moved: 1 yes, 0 no, -1 none seen yet.
int last_done_was_movable();
// For tests: treat every callback as one that cannot be moved.
void refuse_to_move(bool refuse);

}  // namespace horovod::tensorflow
