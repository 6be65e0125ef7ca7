// SPDX-License-Identifier: Apache-2.0
#include "net/quick_wire.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "util/clock.h"
#include "util/status.h"
#include "world/link_plan.h"

namespace hvd {
namespace {

// A lost connection is a symptom: the end of the job that explains it is usually a moment behind.
constexpr double kGrace = 0.5;

// What a host may send to all others together, if there are several. With 64 KiB, 64 KiB among three hosts take 235 us
// instead of 113; with twice as much it would be felt on slow wires.
constexpr size_t kToAll = 128 << 10;
// What the ranks of a host may bring together; and each, however many they are.
constexpr size_t kOfAllRanks = 1 << 20;
constexpr size_t kOfEach = 64 << 10;

// What is taken off a connection at once unless a message is known to be longer. What a peer says in the next round is
// moved to the front of the buffer, so it should not be much.
constexpr size_t kGulp = 80 << 10;

}  // namespace

size_t quick_wire_bytes(const Topology& topology) {
  const size_t hosts = topology.ranks_of_host.size();
  size_t ranks = 1;
  for (const std::vector<int>& of_host : topology.ranks_of_host) ranks = std::max(ranks, of_host.size());
  return std::min(hosts > 2 ? kToAll / (hosts - 1) : kQuickWireMost, std::max(kOfAllRanks / ranks, kOfEach));
}

std::unique_ptr<QuickWire> QuickWire::make(const Topology& topology, std::vector<OpenLink>& links,
                                           const LinkSecurity& security) {
  if (!meets_quickly(topology)) return nullptr;
  std::vector<Peer> peers;
  for (int host = 0; host < topology.hosts(); ++host) {
    if (host == topology.host()) continue;
    int leader = topology.leader_of(host);
    auto link = std::find_if(links.begin(), links.end(), [&](const OpenLink& l) {
      return l.what.kind == HVD_LINK_QUICK && l.what.peer == leader && l.fd;
    });
    if (link == links.end())
      throw Refused(HVD_INVALID, "the link for small calls to " + topology.describe(leader) + " is missing");
    Peer peer;
    peer.name = topology.describe(leader);
    peer.seals = security.seals_for(link->what);
    peer.fd = std::move(link->fd);
    peers.push_back(std::move(peer));
  }
  return std::unique_ptr<QuickWire>(
      new QuickWire(topology.host(), std::move(peers), quick_wire_bytes(topology), security.seals_data()));
}

QuickWire::QuickWire(int me, std::vector<Peer> peers, size_t most, bool seals_payload)
    : me_(me),
      most_(most),
      seals_payload_(seals_payload),
      peers_(std::move(peers)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  for (Peer& peer : peers_) {
    make_nonblocking(peer.fd.get());
    peer.buffer = std::make_unique_for_overwrite<char[]>(room());
    watch(peer, EPOLL_CTL_ADD);
  }
}

// Of a peer: what it says in this round and in the next, and a poke in each.
size_t QuickWire::room() const { return 2 * (kHeadBytes + most_ + kSealTagBytes) + 2 * kHeadBytes; }

std::vector<int> QuickWire::descriptors() const {
  std::vector<int> fds{epoll_.get()};
  for (const Peer& peer : peers_) fds.push_back(peer.fd.get());
  return fds;
}

// ------------------------------------------------------------------------------------------ rounds --

bool QuickWire::arrive(uint32_t id, const char* payload, size_t bytes) {
  receive(true);
  if (std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.lost; })) return false;
  bool fits = said_ == kNothing && bytes <= most_ && std::all_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
                return peer.said == kNothing || (peer.said == kCall && peer.id == id && peer.bytes == bytes);
              });
  if (!fits) {
    close_for_others();
    return false;
  }
  inside_ = true;
  id_ = id;
  bytes_ = bytes;
  say(kCall, id, payload, bytes);
  return true;
}

QuickWire::Outcome QuickWire::look() {
  receive(false);
  bool full = true;
  for (const Peer& peer : peers_) {
    if (peer.said == kClose || (peer.said == kCall && (peer.id != id_ || peer.bytes != bytes_)))
      return Outcome::kClosed;
    // Who leaves right after a full round takes what was not sent with it.
    full = full && peer.said == kCall && peer.backlog.empty();
  }
  return full ? Outcome::kFull : Outcome::kOpen;
}

void QuickWire::leave() {
  inside_ = false;
  if (all_said()) next_round();
}

void QuickWire::poke() {
  for (Peer& peer : peers_)
    if (peer.said == kNothing) send(peer, {kPoke, round_, 0, 0, {}}, nullptr);
}

void QuickWire::tend() { receive(true); }

bool QuickWire::is_awaited() const {
  return said_ == kNothing &&
         std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.said != kNothing; });
}

void QuickWire::close_for_others() {
  if (!is_awaited() || !failure_.empty()) return;
  say(kClose, 0, nullptr, 0);
  if (all_said()) next_round();
}

bool QuickWire::all_said() const {
  return said_ != kNothing &&
         std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.said != kNothing; });
}

void QuickWire::next_round() {
  ++round_;
  said_ = kNothing;
  for (Peer& peer : peers_) {
    peer.said = kNothing;
    peer.payload = nullptr;
    std::memmove(peer.buffer.get(), peer.buffer.get() + peer.used, peer.there - peer.used);
    peer.there -= std::exchange(peer.used, 0);
  }
}

// ----------------------------------------------------------------------------------------- sending --

void QuickWire::say(What what, uint32_t id, const char* payload, size_t bytes) {
  said_ = what;
  Head head{what, round_, id, static_cast<uint32_t>(bytes), {}};
  if (bytes <= kInline && bytes) std::memcpy(head.inlined, payload, bytes);
  for (Peer& peer : peers_) send(peer, head, payload);
}

void QuickWire::send(Peer& peer, Head head, const char* payload) {
  if (peer.lost) return;
  char front[kHeadBytes];
  std::memcpy(front, &head, sizeof head);
  peer.seals.out->seal(front, front, sizeof head, front + sizeof head);
  iovec parts[2] = {{front, sizeof front}, {nullptr, 0}};
  if (head.bytes > kInline) {
    parts[1] = {const_cast<char*>(payload), head.bytes};
    if (seals_payload_) {
      sealed_.resize(head.bytes + kSealTagBytes);
      peer.seals.out->seal(payload, sealed_.data(), head.bytes, sealed_.data() + head.bytes);
      parts[1] = {sealed_.data(), sealed_.size()};
    }
  }
  size_t sent = 0;
  if (peer.backlog.empty()) {
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = head.bytes > kInline ? 2 : 1;
    ssize_t n = sendmsg(peer.fd.get(), &message, MSG_NOSIGNAL);
    if (n > 0) sent = static_cast<size_t>(n);
    else if (n < 0 && !may_do_later()) return lose(peer);
  }
  for (const iovec& part : parts) {
    size_t skip = std::min(sent, part.iov_len);
    peer.backlog.append(static_cast<char*>(part.iov_base) + skip, part.iov_len - skip);
    sent -= skip;
  }
  if (!peer.backlog.empty()) watch(peer, EPOLL_CTL_MOD);
}

void QuickWire::flush(Peer& peer) {
  ssize_t n =
      ::send(peer.fd.get(), peer.backlog.data() + peer.flushed, peer.backlog.size() - peer.flushed, MSG_NOSIGNAL);
  if (n > 0) peer.flushed += static_cast<size_t>(n);
  else if (n < 0 && !may_do_later()) return lose(peer);
  if (peer.flushed < peer.backlog.size()) return;
  peer.backlog.clear();
  peer.flushed = 0;
  watch(peer, EPOLL_CTL_MOD);
}

void QuickWire::watch(const Peer& peer, int operation) {
  epoll_event event{};
  event.events = EPOLLIN | (peer.backlog.empty() ? 0U : EPOLLOUT);
  epoll_ctl(epoll_.get(), operation, peer.fd.get(), &event);
}

// --------------------------------------------------------------------------------------- receiving --

void QuickWire::receive(bool all) {
  if (!failure_.empty()) throw JobAborted(failure_);
  for (Peer& peer : peers_) {
    if (!peer.lost && !peer.backlog.empty()) flush(peer);
    if (!peer.lost && (all || peer.said == kNothing)) receive(peer);
    parse(peer);
  }
  if (!inside_ && all_said()) {
    next_round();
    for (Peer& peer : peers_) parse(peer);
  }
  if (inside_ && lost_at_ > 0 && now_s() - lost_at_ > kGrace)
    fail("lost the connection for small calls to another host in the midst of a call");
}

void QuickWire::receive(Peer& peer) {
  if (peer.there == room()) fail(peer.name + " says more than its turn on the link for small calls");
  size_t want = std::min(room() - peer.there, std::max(peer.missing, kGulp));
  ssize_t n = recv(peer.fd.get(), peer.buffer.get() + peer.there, want, 0);
  if (n > 0) peer.there += static_cast<size_t>(n);
  else if (n == 0 || !may_do_later()) lose(peer);
}

void QuickWire::parse(Peer& peer) {
  for (;;) {
    if (peer.there - peer.used < kHeadBytes) return;
    char* at = peer.buffer.get() + peer.used;
    if (!peer.head_open) open(peer, at, sizeof(Head));
    peer.head_open = true;
    Head head;
    std::memcpy(&head, at, sizeof head);
    if (head.what == kPoke) {
      peer.used += kHeadBytes;
      peer.head_open = false;
      if (head.round == round_) close_for_others();
      continue;
    }
    if (peer.said != kNothing) return;  // it is in the next round already
    if ((head.what != kCall && head.what != kClose) || head.round != round_ || head.bytes > most_)
      fail(peer.name +
           " says what cannot be on the link for small calls; do all ranks run the same version of this "
           "package?");
    size_t tail = head.bytes <= kInline ? 0 : head.bytes + (seals_payload_ ? kSealTagBytes : 0);
    size_t whole = kHeadBytes + tail;
    size_t here = peer.there - peer.used;
    peer.missing = whole - std::min(whole, here);
    if (peer.missing) return;
    peer.payload = tail ? at + kHeadBytes : at + offsetof(Head, inlined);
    if (tail && seals_payload_) open(peer, at + kHeadBytes, head.bytes);
    peer.head_open = false;
    peer.used += kHeadBytes + tail;
    peer.said = static_cast<What>(head.what);
    peer.id = head.id;
    peer.bytes = head.bytes;
  }
}

void QuickWire::open(Peer& peer, char* data, size_t n) {
  if (!peer.seals.in->open(data, n, data + n)) fail(altered_text(peer.name));
}

void QuickWire::lose(Peer& peer) {
  peer.lost = true;
  peer.backlog.clear();
  peer.flushed = 0;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer.fd.get(), nullptr);
  if (inside_ && peer.said == kNothing && lost_at_ == 0) lost_at_ = now_s();
}

void QuickWire::fail(const std::string& text) {
  failure_ = text;
  throw JobAborted(text);
}

}  // namespace hvd
