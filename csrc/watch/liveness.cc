// SPDX-License-Identifier: Apache-2.0
#include "watch/liveness.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "util/clock.h"
#include "util/log.h"
#include "util/threads.h"

namespace hvd {
namespace {

constexpr uint32_t kMagic = 0x68767721;
constexpr int kTickMs = 250;
constexpr size_t kMaxOutgoing = 64 << 10;

}  // namespace

Liveness::Liveness(const Topology& topology, std::vector<OpenLink>& links, const LinkSecurity& security,
                   Callbacks callbacks)
    : topology_(topology), callbacks_(std::move(callbacks)), wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (OpenLink& link : links) {
    if (link.what.kind != HVD_LINK_WATCH || !link.fd) continue;
    make_nonblocking(link.fd.get());
    Peer peer;
    peer.rank = link.what.peer;
    peer.seals = security.seals_for(link.what);
    peer.fd = std::move(link.fd);
    peers_.push_back(std::move(peer));
  }
}

void Liveness::start() {
  thread_ = start_thread("hvd-watch", [this] { loop(); });
}

std::vector<int> Liveness::descriptors() const {
  std::vector<int> fds{wake_fd_.get()};
  for (const Peer& peer : peers_) fds.push_back(peer.fd.get());
  return fds;
}

void Liveness::stop(const std::string& why) {
  if (stopping_.exchange(true) || !thread_.joinable()) return;  // who never started does not say goodbye
  flood(kGoodbye, topology_.rank, why, nullptr);
  uint64_t one = 1;
  [[maybe_unused]] ssize_t n = write(wake_fd_.get(), &one, sizeof one);
  thread_.join();
  if (answer_thread_.joinable()) answer_thread_.join();
  for (Peer& peer : peers_) shutdown(peer.fd.get(), SHUT_WR);
}

void Liveness::loop() {
  std::vector<pollfd> fds;
  double next_tick = now_s() + kTickMs * 1e-3;
  while (!stopping_) {
    fds.assign(1, {wake_fd_.get(), POLLIN, 0});
    std::vector<Peer*> polled;
    for (Peer& peer : peers_)
      if (peer.open) {
        std::lock_guard<std::mutex> lock(send_mutex_);
        fds.push_back({peer.fd.get(), static_cast<short>(peer.outgoing.empty() ? POLLIN : POLLIN | POLLOUT), 0});
        polled.push_back(&peer);
      }
    poll(fds.data(), fds.size(), kTickMs);
    if (stopping_) return;
    for (size_t i = 0; i < polled.size(); ++i) {
      if (fds[i + 1].revents & POLLOUT) {
        std::lock_guard<std::mutex> lock(send_mutex_);
        flush_locked(*polled[i]);
      }
      if (fds[i + 1].revents & ~POLLOUT) read(*polled[i]);
    }
    if (double now = now_s(); now >= next_tick) {
      next_tick = now + kTickMs * 1e-3;
      callbacks_.tick();
    }
  }
}

void Liveness::read(Peer& peer) {
  char buffer[4 * sizeof(Message)];
  ssize_t n = recv(peer.fd.get(), buffer, sizeof buffer, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    peer.open = false;
    died(peer,
         n == 0 ? "its process ended or was killed" : std::string("its connection broke: ") + std::strerror(errno));
    return;
  }
  peer.partial.append(buffer, static_cast<size_t>(n));
  while (peer.open && peer.partial.size() >= peer.wire_bytes()) {
    char* at = peer.partial.data();
    if (peer.seals.in && !peer.seals.in->open(at, sizeof(Message), at + sizeof(Message))) {
      peer.open = false;
      return end_job(peer, altered_text(topology_.describe(peer.rank)));
    }
    Message message;
    std::memcpy(&message, at, sizeof message);
    peer.partial.erase(0, peer.wire_bytes());
    message.text[sizeof message.text - 1] = 0;
    if (message.magic != kMagic) {
      peer.open = false;
      died(peer, "it sent something that is not a message of this job");
      return;
    }
    if (message.generation != topology_.generation) {
      peer.open = false;
      died(peer, "it is in generation " + std::to_string(message.generation) + " of this job's world, and this is " +
                     std::to_string(topology_.generation));
      return;
    }
    handle(peer, message);
  }
}

void Liveness::died(Peer& peer, const std::string& how) {
  std::string last = callbacks_.last_words(peer.rank);
  std::string text = "Horovod lost " + topology_.describe(peer.rank) + ": " + how + "." +
                     (last.empty() ? "" : " It was last seen " + last + ".") +
                     " All outstanding operations have failed. Look for the first error in that rank's output, then "
                     "restart the job (or run it elastically).";
  end_job(peer, text);
}

void Liveness::end_job(const Peer& peer, const std::string& text) {
  if (peer.goodbye || quiet_ || stopping_ || aborted_) return;
  HVD_LOG(Info, "[" << topology_.rank << "]: " << text);
  broadcast_abort(text);
  callbacks_.aborted(text);
}

void Liveness::broadcast_abort(const std::string& text) {
  if (aborted_.exchange(true)) return;
  flood(kAbort, topology_.rank, text, nullptr);
}

void Liveness::handle(Peer& peer, const Message& message) {
  switch (message.type) {
    case kAbort:
      if (!aborted_.exchange(true)) {
        flood(kAbort, message.rank, message.text, &peer);
        callbacks_.aborted(message.text);
      }
      break;
    case kGoodbye:
      peer.goodbye = true;
      callbacks_.said_goodbye(message.text);
      break;
    case kPing: send(peer, kPong, topology_.rank, ""); break;
    case kPong:
      peer.asked = 0;
      peer.answered = now_s();
      break;
    case kWhere:
      if (message.rank != topology_.rank) {
        flood(kWhere, message.rank, "", &peer);
      } else {
        // On a thread of its own: Python may hold its lock for long, and this thread must go on watching.
        if (answering_.exchange(true)) break;
        if (answer_thread_.joinable()) answer_thread_.join();
        answer_thread_ = start_thread("hvd-where", [this, &peer] {
          send(peer, kHere, topology_.rank, callbacks_.where());
          answering_ = false;
        });
      }
      break;
    case kHere:
      flood(kHere, message.rank, message.text, &peer);
      callbacks_.found(message.rank, message.text);
      break;
    default: break;  // from a newer version; nothing to do
  }
}

void Liveness::ask_where(int rank) {
  if (rank == topology_.rank) {
    callbacks_.found(rank, callbacks_.where());
    return;
  }
  flood(kWhere, rank, "", nullptr);
}

int Liveness::silent_neighbour(double patience_s) {
  double now = now_s();
  int silent = -1;
  for (Peer& peer : peers_) {
    if (!peer.open || peer.goodbye) continue;
    if (peer.asked == 0) {
      if (now - peer.answered < 1.0) continue;
      peer.asked = now;
      send(peer, kPing, topology_.rank, "");
    } else if (now - peer.asked > patience_s) {
      silent = peer.rank;
    }
  }
  return silent;
}

void Liveness::flood(Type type, int rank, const std::string& text, const Peer* except) {
  for (Peer& peer : peers_)
    if (&peer != except) send(peer, type, rank, text);
}

void Liveness::send(Peer& peer, Type type, int rank, const std::string& text) {
  Message message{};
  message.magic = kMagic;
  message.type = type;
  message.rank = rank;
  message.generation = topology_.generation;
  std::memcpy(message.text, text.data(), std::min(text.size(), sizeof message.text - 1));
  std::lock_guard<std::mutex> lock(send_mutex_);
  // Messages are rare and small: a full buffer means the peer is frozen or gone, and then it need not hear.
  if (peer.outgoing.size() > kMaxOutgoing) return;
  size_t begin = peer.outgoing.size();
  peer.outgoing.resize(begin + sizeof message + (peer.seals.out ? kSealTagBytes : 0));
  char* at = peer.outgoing.data() + begin;
  const char* plain = reinterpret_cast<const char*>(&message);
  if (peer.seals.out) peer.seals.out->seal(plain, at, sizeof message, at + sizeof message);
  else std::memcpy(at, plain, sizeof message);
  flush_locked(peer);
}

// Never part of a message alone: what finds no room goes first the next time.
void Liveness::flush_locked(Peer& peer) {
  while (!peer.outgoing.empty()) {
    ssize_t n = ::send(peer.fd.get(), peer.outgoing.data(), peer.outgoing.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) return peer.outgoing.clear();  // it is gone, and the reading side will see that
    peer.outgoing.erase(0, static_cast<size_t>(n));
  }
}

}  // namespace hvd
