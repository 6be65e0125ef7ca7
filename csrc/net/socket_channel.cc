// SPDX-License-Identifier: Apache-2.0
#include "net/socket_channel.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "util/status.h"

namespace hvd {
namespace {

constexpr size_t kLengthBytes = sizeof(uint32_t) + kSealTagBytes;

}  // namespace

SocketChannel::SocketChannel(UniqueFd fd, Seals seals, std::string peer)
    : fd_(std::move(fd)), seals_(std::move(seals)), peer_(std::move(peer)) {
  make_nonblocking(fd_.get());
}

void SocketChannel::wrap(std::string_view frame, std::string* out) {
  size_t begin = out->size();
  out->resize(begin + kLengthBytes + frame.size() + kSealTagBytes);
  char* at = out->data() + begin;
  auto length = static_cast<uint32_t>(frame.size());
  std::memcpy(at, &length, sizeof length);
  seals_.out->seal(at, at, sizeof length, at + sizeof length);
  at += kLengthBytes;
  seals_.out->seal(frame.data(), at, frame.size(), at + frame.size());
}

void SocketChannel::open(char* data, size_t n) {
  if (!seals_.in->open(data, n, data + n)) throw JobAborted(altered_text(peer_));
}

void SocketChannel::unwrap() {
  size_t used = 0;
  for (;;) {
    char* at = received_.data() + used;
    size_t there = received_.size() - used;
    if (!length_known_) {
      if (there < kLengthBytes) break;
      open(at, sizeof length_);
      std::memcpy(&length_, at, sizeof length_);
      length_known_ = true;
    }
    if (there < kLengthBytes + length_ + kSealTagBytes) break;
    open(at + kLengthBytes, length_);
    parser_.feed(at + kLengthBytes, length_);
    length_known_ = false;
    used += kLengthBytes + length_ + kSealTagBytes;
  }
  received_.erase(0, used);
}

bool SocketChannel::receive() {
  char buffer[64 << 10];
  bool any = false;
  for (;;) {
    ssize_t n = recv(fd_.get(), buffer, sizeof buffer, 0);
    if (n > 0) {
      received_.append(buffer, static_cast<size_t>(n));
      any = true;
      if (static_cast<size_t>(n) == sizeof buffer) continue;
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
      throw JobAborted("lost the control connection to " + peer_ + ": " +
                       (n == 0 ? "it was closed" : std::strerror(errno)));
    }
    if (any) unwrap();
    return any;
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
