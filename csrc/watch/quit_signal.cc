// SPDX-License-Identifier: Apache-2.0
#include "watch/quit_signal.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "util/threads.h"

namespace hvd {
namespace {

std::atomic<int> listener{-1};  // whom the handler tells; -1: nobody

void handle(int /*number*/) {
  int before = errno;
  uint64_t one = 1;
  if (int fd = listener; fd >= 0) [[maybe_unused]]
    ssize_t n = write(fd, &one, sizeof one);
  errno = before;
}

bool handler_is(void (*handler)(int)) {
  struct sigaction current{};
  sigaction(SIGQUIT, nullptr, &current);
  return !(current.sa_flags & SA_SIGINFO) && current.sa_handler == handler;
}

void set_handler(void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGQUIT, &action, nullptr);
}

}  // namespace

QuitSignal::QuitSignal(std::function<void()> body) : body_(std::move(body)) {
  if (!handler_is(SIG_DFL)) return;
  wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  listener = wake_.get();
  set_handler(handle);
  thread_ = start_thread("hvd-quit", [this] {
    uint64_t times = 0;
    while (read(wake_.get(), &times, sizeof times) == sizeof times || errno == EINTR) {
      if (listener != wake_.get()) return;
      body_();
    }
  });
}

void QuitSignal::stop() {
  if (!thread_.joinable()) return;
  if (handler_is(handle)) set_handler(SIG_DFL);
  listener = -1;
  uint64_t one = 1;
  [[maybe_unused]] ssize_t n = write(wake_.get(), &one, sizeof one);
  thread_.join();
}

void QuitSignal::after_fork_in_child() { listener = -1; }

}  // namespace hvd
