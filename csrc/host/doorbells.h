// SPDX-License-Identifier: Apache-2.0
// How ranks of one host wake each other: a counter in shared memory to spin on, and an eventfd for those who sleep.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "host/segment.h"
#include "util/fd.h"

namespace hvd {

class Doorbells {
 public:
  // fds[i]: the eventfd of local rank i; me is this one's.
  Doorbells(Segment& segment, int me, std::vector<UniqueFd> fds) : segment_(segment), me_(me), fds_(std::move(fds)) {}

  // Any thread, any process.
  void ring(int local);
  void ring_own() { ring(me_); }

  // How often this rank's bell has rung: read it, look for work, and sleep if it has not changed.
  uint32_t count() const { return segment_.rank(me_).bell.load(std::memory_order_acquire); }
  // Sleeps until the bell has rung more than `seen` times, a socket has input, or the time is over. Several threads of
  // this rank may sleep at once; a ring wakes them all.
  void sleep(uint32_t seen, double timeout_s, const std::vector<int>& sockets);
  // Whether one of the sockets has input now.
  static bool has_input(const std::vector<int>& sockets);

  // What a forked child must close.
  std::vector<int> descriptors() const;

 private:
  Segment& segment_;
  const int me_;
  const std::vector<UniqueFd> fds_;
  // Guards the number of sleepers together with the eventfd's content: the last to wake empties it, and nobody may lie
  // down between its look and its read, or the ring meant for him is gone.
  std::mutex sleepers_mutex_;
};

}  // namespace hvd
