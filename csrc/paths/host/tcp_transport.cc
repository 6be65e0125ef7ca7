// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "paths/host/transport.h"
#include "util/status.h"

namespace hvd {
namespace {

// Walks through a list of pieces as they are transferred.
class Cursor {
 public:
  explicit Cursor(const Pieces& pieces) : pieces_(pieces) { skip_empty(); }
  bool done() const { return index_ == pieces_.size(); }
  // Up to 16 buffers for one system call.
  int fill(iovec* vectors) const {
    int n = 0;
    for (size_t i = index_; i < pieces_.size() && n < 16; ++i) {
      size_t skip = i == index_ ? offset_ : 0;
      vectors[n++] = {pieces_[i].data + skip, pieces_[i].bytes - skip};
    }
    return n;
  }
  void advance(size_t bytes) {
    while (bytes) {
      size_t step = std::min(bytes, pieces_[index_].bytes - offset_);
      offset_ += step;
      bytes -= step;
      if (offset_ == pieces_[index_].bytes) {
        ++index_;
        offset_ = 0;
        skip_empty();
      }
    }
  }

 private:
  void skip_empty() {
    while (index_ < pieces_.size() && pieces_[index_].bytes == 0) ++index_;
  }
  const Pieces& pieces_;
  size_t index_ = 0;
  size_t offset_ = 0;
};

class TcpTransport : public Transport {
 public:
  TcpTransport(std::vector<UniqueFd> out_fds, std::vector<UniqueFd> in_fds, std::function<void()> check)
      : out_(std::move(out_fds)), in_(std::move(in_fds)), check_(std::move(check)) {
    for (const UniqueFd& fd : out_) make_nonblocking(fd.get());
    for (const UniqueFd& fd : in_) make_nonblocking(fd.get());
  }

  void exchange(int hop, const Pieces& out, const Pieces& in) override {
    Cursor sending(out);
    Cursor receiving(in);
    iovec vectors[16];
    while (!sending.done() || !receiving.done()) {
      bool moved = false;
      if (!sending.done()) {
        msghdr message{};
        message.msg_iov = vectors;
        message.msg_iovlen = static_cast<size_t>(sending.fill(vectors));
        ssize_t n = sendmsg(out_[hop].get(), &message, MSG_NOSIGNAL);
        moved |= settle(n, &sending, "sending to");
      }
      if (!receiving.done()) {
        msghdr message{};
        message.msg_iov = vectors;
        message.msg_iovlen = static_cast<size_t>(receiving.fill(vectors));
        ssize_t n = recvmsg(in_[hop].get(), &message, 0);
        if (n == 0) fail("receiving from", "the connection was closed");
        moved |= settle(n, &receiving, "receiving from");
      }
      if (!moved) sleep(hop, !sending.done(), !receiving.done());
    }
  }

  std::vector<int> descriptors() const override {
    std::vector<int> all;
    for (const UniqueFd& fd : out_) all.push_back(fd.get());
    for (const UniqueFd& fd : in_) all.push_back(fd.get());
    return all;
  }

 private:
  bool settle(ssize_t n, Cursor* cursor, const char* doing) {
    if (n > 0) {
      cursor->advance(static_cast<size_t>(n));
      return true;
    }
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) fail(doing, std::strerror(errno));
    return false;
  }

  [[noreturn]] void fail(const char* doing, const std::string& why) {
    check_();  // the abort that caused it has the better text
    throw JobAborted(std::string("lost the data connection while ") + doing + " another host: " + why);
  }

  void sleep(int hop, bool want_out, bool want_in) {
    pollfd fds[2];
    nfds_t n = 0;
    if (want_out) fds[n++] = {out_[hop].get(), POLLOUT, 0};
    if (want_in) fds[n++] = {in_[hop].get(), POLLIN, 0};
    if (poll(fds, n, 100) == 0) check_();
  }

  std::vector<UniqueFd> out_;
  std::vector<UniqueFd> in_;
  std::function<void()> check_;
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(std::vector<UniqueFd> out_fds, std::vector<UniqueFd> in_fds,
                                              std::function<void()> check) {
  return std::make_unique<TcpTransport>(std::move(out_fds), std::move(in_fds), std::move(check));
}

}  // namespace hvd
