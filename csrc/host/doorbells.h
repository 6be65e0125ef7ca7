// SPDX-License-Identifier: Apache-2.0
// How ranks of one host wake each other: a counter in shared memory to spin on, and an eventfd for those who sleep.
#pragma once

#include <atomic>
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
  // The same for this rank's own. Who was woken may have to wait for a core; until it runs, further rings are free.
  void ring_own();

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
  // True if somebody sleeps there.
  bool count_ring(int local);
  void wake(int local);

  Segment& segment_;
  const int me_;
  const std::vector<UniqueFd> fds_;
  // Guards the number of sleepers together with the eventfd's content: the last to wake empties it, and nobody may lie
  // down between its look and its read, or the ring meant for him is gone.
  std::mutex sleepers_mutex_;
  // This process has written the eventfd, or is about to, and it was not emptied since. Only those who have seen a
  // sleeper set it, only the last sleeper clears it, under the mutex.
  std::atomic<bool> woken_{false};
};

}  // namespace hvd
