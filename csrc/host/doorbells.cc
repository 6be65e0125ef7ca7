// SPDX-License-Identifier: Apache-2.0
#include "host/doorbells.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "util/clock.h"

namespace hvd {
namespace {

constexpr size_t kMaxSockets = 16;  // a leader has one to its parent and up to kTreeArity to its children

nfds_t fill(pollfd* fds, const std::vector<int>& sockets) {
  size_t n = std::min(sockets.size(), kMaxSockets);
  for (size_t i = 0; i < n; ++i) fds[i] = {sockets[i], POLLIN, 0};
  return n;
}

}  // namespace

bool Doorbells::count_ring(int local) {
  RankState& state = segment_.rank(local);
  state.bell.fetch_add(1, std::memory_order_seq_cst);
  return state.sleepers.load(std::memory_order_seq_cst) != 0;
}

void Doorbells::wake(int local) {
  uint64_t one = 1;
  // A full counter means it is ringing already.
  [[maybe_unused]] ssize_t n = write(fds_[local].get(), &one, sizeof one);
}

void Doorbells::ring(int local) {
  if (count_ring(local)) wake(local);
}

void Doorbells::ring_own() {
  if (count_ring(me_) && !woken_.exchange(true, std::memory_order_seq_cst)) wake(me_);
}

bool Doorbells::has_input(const std::vector<int>& sockets) {
  if (sockets.empty()) return false;
  pollfd fds[kMaxSockets];
  return ::poll(fds, fill(fds, sockets), 0) > 0;
}

void Doorbells::sleep(uint32_t seen, double timeout_s, const std::vector<int>& sockets) {
  RankState& me = segment_.rank(me_);
  pollfd fds[kMaxSockets + 1];
  fds[0] = {fds_[me_].get(), POLLIN, 0};
  nfds_t n = 1 + fill(fds + 1, sockets);
  {
    std::lock_guard<std::mutex> lock(sleepers_mutex_);
    me.sleepers.fetch_add(1, std::memory_order_seq_cst);
  }
  timespec limit = timespec_of(std::max(timeout_s, 0.0));
  if (me.bell.load(std::memory_order_seq_cst) == seen) ::ppoll(fds, n, &limit, nullptr);
  std::lock_guard<std::mutex> lock(sleepers_mutex_);
  if (me.sleepers.fetch_sub(1, std::memory_order_seq_cst) > 1) return;
  uint64_t count;
  [[maybe_unused]] ssize_t got = read(fds[0].fd, &count, sizeof count);
  woken_.store(false, std::memory_order_seq_cst);
}

std::vector<int> Doorbells::descriptors() const {
  std::vector<int> all;
  for (const UniqueFd& fd : fds_) all.push_back(fd.get());
  return all;
}

}  // namespace hvd
