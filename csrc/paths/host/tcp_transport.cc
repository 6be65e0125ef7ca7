// SPDX-License-Identifier: Apache-2.0
// Bytes between hosts over sockets. Both ends know all sizes, so nothing is framed. A sealed link cuts what an exchange
// sends into records of up to kRecordBytes, each followed by its tag; what arrives is used only after its tag fits.
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

#include "paths/host/transport.h"
#include "util/status.h"

namespace hvd {
namespace {

constexpr size_t kRecordBytes = 64 << 10;  // stays in a core's cache between the cipher and the socket
constexpr int kPartsPerCall = 16;

// One end of a link, with what it needs again and again.
struct Link {
  explicit Link(DataLink given) : fd(std::move(given.fd)), seal(std::move(given.seal)), peer(std::move(given.peer)) {
    make_nonblocking(fd.get());
  }
  UniqueFd fd;
  std::unique_ptr<Seal> seal;
  std::string peer;
  std::vector<iovec> parts;  // of the running record, with its tag
  std::vector<char> hidden;  // a record on its way out, encrypted
  char tag[kSealTagBytes];
};

// One direction of an exchange.
class Flow {
 public:
  Flow(Link& link, const Pieces& pieces, bool sends) : link_(link), pieces_(pieces), sends_(sends) { next_record(); }

  bool done() const { return link_.parts.empty(); }
  short event() const { return sends_ ? POLLOUT : POLLIN; }
  int fd() const { return link_.fd.get(); }
  const std::string& peer() const { return link_.peer; }
  bool sends() const { return sends_; }

  // Moves what can be moved now: bytes, 0 at the end of the connection, or -1 and errno.
  ssize_t step() {
    iovec vectors[kPartsPerCall];
    msghdr message{};
    message.msg_iov = vectors;
    for (size_t i = part_; i < link_.parts.size() && message.msg_iovlen < kPartsPerCall; ++i) {
      size_t skip = i == part_ ? offset_ : 0;
      vectors[message.msg_iovlen++] = {static_cast<char*>(link_.parts[i].iov_base) + skip,
                                       link_.parts[i].iov_len - skip};
    }
    ssize_t n = sends_ ? sendmsg(fd(), &message, MSG_NOSIGNAL) : recvmsg(fd(), &message, 0);
    if (n > 0) advance(static_cast<size_t>(n));
    return n;
  }

 private:
  void advance(size_t bytes) {
    while (bytes) {
      size_t step = std::min(bytes, link_.parts[part_].iov_len - offset_);
      offset_ += step;
      bytes -= step;
      if (offset_ < link_.parts[part_].iov_len) continue;
      offset_ = 0;
      ++part_;
    }
    if (part_ < link_.parts.size()) return;
    if (link_.seal && !sends_) check_record();
    next_record();
  }

  // The next bytes of the pieces; without a seal that is all of them.
  void next_record() {
    std::vector<iovec>& parts = link_.parts;
    parts.clear();
    part_ = offset_ = 0;
    size_t room = link_.seal ? kRecordBytes : std::numeric_limits<size_t>::max();
    while (piece_ < pieces_.size() && room) {
      size_t n = std::min(room, pieces_[piece_].bytes - inside_);
      if (n) parts.push_back({pieces_[piece_].data + inside_, n});
      room -= n;
      inside_ += n;
      if (inside_ < pieces_[piece_].bytes) continue;
      inside_ = 0;
      ++piece_;
    }
    if (parts.empty() || !link_.seal) return;
    if (sends_) seal_record();
    parts.push_back({link_.tag, kSealTagBytes});
  }

  void seal_record() {
    Seal& seal = *link_.seal;
    seal.begin();
    if (seal.encrypts()) link_.hidden.resize(kRecordBytes);
    char* out = link_.hidden.data();
    for (const iovec& part : link_.parts) {
      seal.pass(static_cast<const char*>(part.iov_base), out, part.iov_len);
      if (seal.encrypts()) out += part.iov_len;
    }
    seal.make_tag(link_.tag);
    if (seal.encrypts()) link_.parts.assign(1, {link_.hidden.data(), static_cast<size_t>(out - link_.hidden.data())});
  }

  void check_record() {
    Seal& seal = *link_.seal;
    seal.begin();
    for (size_t i = 0; i + 1 < link_.parts.size(); ++i) {
      auto* data = static_cast<char*>(link_.parts[i].iov_base);
      seal.pass(data, data, link_.parts[i].iov_len);
    }
    if (!seal.fits_tag(link_.tag)) throw JobAborted(altered_text(link_.peer));
  }

  Link& link_;
  const Pieces& pieces_;
  const bool sends_;
  size_t piece_ = 0;  // where the next record begins: piece, and offset inside of it
  size_t inside_ = 0;
  size_t part_ = 0;  // how far the running record is: part, and offset inside of it
  size_t offset_ = 0;
};

class TcpTransport : public Transport {
 public:
  TcpTransport(std::vector<DataLink> out, std::vector<DataLink> in, std::function<void()> check)
      : check_(std::move(check)) {
    for (DataLink& link : out) out_.emplace_back(std::move(link));
    for (DataLink& link : in) in_.emplace_back(std::move(link));
  }

  void exchange(int hop, const Pieces& out, const Pieces& in) override {
    Flow sending(out_[hop], out, true);
    Flow receiving(in_[hop], in, false);
    while (!sending.done() || !receiving.done()) {
      bool moved = !sending.done() && move(&sending);
      moved |= !receiving.done() && move(&receiving);
      if (!moved) sleep(sending, receiving);
    }
  }

  std::vector<int> descriptors() const override {
    std::vector<int> all;
    for (const Link& link : out_) all.push_back(link.fd.get());
    for (const Link& link : in_) all.push_back(link.fd.get());
    return all;
  }

 private:
  bool move(Flow* flow) {
    ssize_t n = flow->step();
    if (n > 0) return true;
    if (n < 0 && may_do_later()) return false;
    std::string why = n == 0 ? "the connection was closed" : std::strerror(errno);
    check_();  // the abort that caused it has the better text
    throw JobAborted(std::string("lost the data connection while ") +
                     (flow->sends() ? "sending to " : "receiving from ") + flow->peer() + ": " + why);
  }

  void sleep(const Flow& sending, const Flow& receiving) {
    pollfd fds[2];
    nfds_t n = 0;
    for (const Flow* flow : {&sending, &receiving})
      if (!flow->done()) fds[n++] = {flow->fd(), flow->event(), 0};
    if (poll(fds, n, 100) == 0) check_();
  }

  std::vector<Link> out_;  // by hop
  std::vector<Link> in_;
  std::function<void()> check_;
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(std::vector<DataLink> out, std::vector<DataLink> in,
                                              std::function<void()> check) {
  return std::make_unique<TcpTransport>(std::move(out), std::move(in), std::move(check));
}

}  // namespace hvd
