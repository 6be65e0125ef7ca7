// SPDX-License-Identifier: Apache-2.0
#include "host/channel.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "util/status.h"

namespace hvd {

bool Channel::flush() {
  while (sent_ < backlog_.size()) {
    size_t n = write_some(backlog_.data() + sent_, backlog_.size() - sent_);
    if (n == 0) return false;
    sent_ += n;
  }
  backlog_.clear();
  sent_ = 0;
  return true;
}

void Bells::ring(int local) {
  RankState& state = segment_.rank(local);
  state.bell.fetch_add(1, std::memory_order_seq_cst);
  if (state.sleepers.load(std::memory_order_seq_cst) != 0) {
    uint64_t one = 1;
    // A full counter means it is ringing already.
    [[maybe_unused]] ssize_t n = write(doorbells_[local], &one, sizeof one);
  }
}

bool MailboxChannel::receive() {
  uint64_t begin = in_.read.load(std::memory_order_relaxed);
  uint64_t end = in_.written.load(std::memory_order_acquire);
  if (begin == end) return false;
  if (end - begin > kMailboxBytes) throw JobAborted("a mailbox in shared memory is corrupt");
  while (begin < end) {
    size_t at = begin % kMailboxBytes;
    size_t n = std::min<uint64_t>(end - begin, kMailboxBytes - at);
    parser_.feed(in_.bytes + at, n);
    begin += n;
  }
  in_.read.store(begin, std::memory_order_seq_cst);
  if (in_.writer_waits.exchange(0, std::memory_order_seq_cst)) bells_.ring(peer_);
  return true;
}

size_t MailboxChannel::write_some(const char* data, size_t n) {
  uint64_t end = out_.written.load(std::memory_order_relaxed);
  size_t room = kMailboxBytes - (end - out_.read.load(std::memory_order_acquire));
  if (room == 0) {
    out_.writer_waits.store(1, std::memory_order_seq_cst);
    room = kMailboxBytes - (end - out_.read.load(std::memory_order_seq_cst));
    if (room == 0) return 0;
  }
  size_t at = end % kMailboxBytes;
  n = std::min({n, room, kMailboxBytes - at});
  std::memcpy(out_.bytes + at, data, n);
  out_.written.store(end + n, std::memory_order_release);
  bells_.ring(peer_);
  return n;
}

SocketChannel::SocketChannel(int fd, std::string peer) : fd_(fd), peer_(std::move(peer)) {
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
}

SocketChannel::~SocketChannel() { close(fd_); }

bool SocketChannel::receive() {
  char buffer[64 << 10];
  bool any = false;
  for (;;) {
    ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
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
    ssize_t done = ::send(fd_, data, n, MSG_NOSIGNAL);
    if (done >= 0) return static_cast<size_t>(done);
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    throw JobAborted("lost the control connection to " + peer_ + ": " + std::strerror(errno));
  }
}

}  // namespace hvd
