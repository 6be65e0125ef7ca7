// SPDX-License-Identifier: Apache-2.0
#include "net/socket_channel.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "util/status.h"

namespace hvd {

SocketChannel::SocketChannel(UniqueFd fd, std::string peer) : fd_(std::move(fd)), peer_(std::move(peer)) {
  make_nonblocking(fd_.get());
}

bool SocketChannel::receive() {
  char buffer[64 << 10];
  bool any = false;
  for (;;) {
    ssize_t n = recv(fd_.get(), buffer, sizeof buffer, 0);
    if (n > 0) {
      parser_.feed(buffer, static_cast<size_t>(n));
      any = true;
      if (static_cast<size_t>(n) < sizeof buffer) return true;
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return any;
    } else {
      throw JobAborted("lost the control connection to " + peer_ + ": " +
                       (n == 0 ? "it was closed" : std::strerror(errno)));
    }
  }
}

size_t SocketChannel::write_some(const char* data, size_t n) {
  for (;;) {
    ssize_t done = ::send(fd_.get(), data, n, MSG_NOSIGNAL);
    if (done >= 0) return static_cast<size_t>(done);
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    throw JobAborted("lost the control connection to " + peer_ + ": " + std::strerror(errno));
  }
}

}  // namespace hvd
