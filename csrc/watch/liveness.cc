// SPDX-License-Identifier: Apache-2.0
#include "watch/liveness.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "util/clock.h"
#include "util/log.h"
#include "util/threads.h"

namespace hvd {
namespace {

constexpr uint32_t kMagic = 0x68767721;
constexpr int kTickMs = 250;
constexpr size_t kMaxOutgoing = 64 << 10;
constexpr size_t kTextPart = 1000;       // of a message
constexpr size_t kMaxAnswer = 24 << 10;  // where a rank is, with all its stacks
constexpr double kClockEvery = 10;       // seconds; once it is known

int64_t epoch_us() { return static_cast<int64_t>(epoch_s() * 1e6); }

}  // namespace

Liveness::Liveness(const Topology& topology, std::vector<OpenLink>& links, const LinkSecurity& security,
                   Callbacks callbacks)
    : topology_(topology),
      callbacks_(std::move(callbacks)),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      clock_known_(topology.host() == 0) {
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
  {
    std::lock_guard<std::mutex> lock(errand_mutex_);
    errands_.clear();
  }
  if (errand_thread_.joinable()) errand_thread_.join();
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
      ask_clock();
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
        errand([this, &peer] {
          std::string text = callbacks_.where().substr(0, kMaxAnswer);
          for (; text.size() > kTextPart; text.erase(0, kTextPart))
            send(peer, kHerePart, topology_.rank, text.substr(0, kTextPart));
          send(peer, kHere, topology_.rank, text);
        });
      }
      break;
    case kHerePart:
      flood(kHerePart, message.rank, message.text, &peer);
      if (here_[message.rank].size() < kMaxAnswer) here_[message.rank] += message.text;
      break;
    case kHere:
      flood(kHere, message.rank, message.text, &peer);
      callbacks_.found(message.rank, std::exchange(here_[message.rank], {}) + message.text);
      break;
    case kWriteDown:
      flood(kWriteDown, message.rank, message.text, &peer);
      errand([this, why = std::string(message.text)] { callbacks_.write_down(why); });
      break;
    case kClock: tell_clock(peer, message.text); break;
    case kTime: learn_clock(message.text); break;
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

void Liveness::ask_to_write_down(const std::string& why) {
  flood(kWriteDown, topology_.rank, why, nullptr);
  errand([this, why] { callbacks_.write_down(why); });
}

void Liveness::errand(std::function<void()> body) {
  std::lock_guard<std::mutex> lock(errand_mutex_);
  if (stopping_) return;
  errands_.push_back(std::move(body));
  if (std::exchange(running_errands_, true)) return;
  if (errand_thread_.joinable()) errand_thread_.join();  // it has let go of the lock for the last time
  errand_thread_ = start_thread("hvd-errands", [this] {
    while (true) {
      std::function<void()> next;
      {
        std::lock_guard<std::mutex> lock(errand_mutex_);
        if (errands_.empty()) {
          running_errands_ = false;
          return;
        }
        next = std::move(errands_.front());
        errands_.pop_front();
      }
      next();
    }
  });
}

// ------------------------------------------------------------------------------------------ clocks --
// Hosts' clocks differ. Each rank asks the one above it in the tree for the time, and how far that one is from rank
// 0's; the answer with the shortest way is believed. Ranks of one host have one clock.

void Liveness::ask_clock() {
  if (topology_.host() == 0) return;
  double now = now_s();
  if (clock_known_ && now - clock_asked_ < kClockEvery) return;
  clock_asked_ = now;
  int above = topology_.leader_of(topology_.is_leader() ? tree_parent(topology_.host()) : topology_.host());
  for (Peer& peer : peers_)
    if (peer.rank == above && peer.open) send(peer, kClock, topology_.rank, std::to_string(epoch_us()));
}

void Liveness::tell_clock(Peer& peer, const std::string& asked) {
  if (!clock_known_) return;
  send(peer, kTime, topology_.rank, asked + " " + std::to_string(epoch_us()) + " " + std::to_string(clock_offset_us_));
}

void Liveness::learn_clock(const std::string& told) {
  char* at = nullptr;
  const int64_t asked = std::strtoll(told.c_str(), &at, 10);
  const int64_t there = std::strtoll(at, &at, 10);
  const int64_t their_offset = std::strtoll(at, &at, 10);
  if (asked <= 0 || there <= 0) return;
  int64_t now = epoch_us();
  int64_t round_trip = now - asked;
  // A clock may also drift: what is not much worse than the best counts.
  if (clock_known_ && round_trip > 2 * clock_round_trip_us_ + 100) return;
  if (!clock_known_ || round_trip < clock_round_trip_us_) clock_round_trip_us_ = round_trip;
  clock_offset_us_ = their_offset + (topology_.is_leader() ? there - (asked + now) / 2 : 0);
  clock_known_ = true;
  callbacks_.clock(clock_offset_us_);
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
