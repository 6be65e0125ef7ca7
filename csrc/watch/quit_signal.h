// SPDX-License-Identifier: Apache-2.0
// SIGQUIT (Ctrl-\, kill -QUIT, or through horovodrun) makes this rank say what it does. Where the program or its user
// has decided what the signal means, before or after, nothing is changed.
#pragma once

#include <functional>
#include <thread>

#include "util/fd.h"

namespace hvd {

class QuitSignal {
 public:
  // body: runs on a thread of its own, once for each signal.
  explicit QuitSignal(std::function<void()> body);
  ~QuitSignal() { stop(); }
  void stop();

  // A forked child does not answer for its parent.
  static void after_fork_in_child();
  int descriptor() const { return wake_.get(); }

 private:
  const std::function<void()> body_;
  UniqueFd wake_;  // none: the signal is somebody else's
  std::thread thread_;
};

}  // namespace hvd
