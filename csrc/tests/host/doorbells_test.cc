// SPDX-License-Identifier: Apache-2.0
//
// Threads of one rank that sleep on its bell: a ring wakes all who lie down before it.
#include "host/doorbells.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <functional>
#include <thread>
#include <utility>

#include "tests/check.h"
#include "util/clock.h"

using namespace hvd;

namespace {

thread_local std::function<void()> before_read;  // of this thread
thread_local std::function<void()> after_poll;
std::atomic<int> writes{0};

}  // namespace

// Instead of the C library's, so that a thread can be held at the point where it empties the bell.
extern "C" ssize_t read(int fd, void* buffer, size_t n) {
  if (before_read) before_read();
  return syscall(SYS_read, fd, buffer, n);
}

// Likewise, where it has been woken and does not know it yet.
extern "C" int ppoll(pollfd* fds, nfds_t n, const timespec* limit, const sigset_t*) {
  timespec left = *limit;  // the system call changes it
  auto ready = static_cast<int>(syscall(SYS_ppoll, fds, n, &left, nullptr, size_t{0}));
  if (after_poll) after_poll();
  return ready;
}

extern "C" ssize_t write(int fd, const void* buffer, size_t n) {
  ++writes;
  return syscall(SYS_write, fd, buffer, n);
}

namespace {

struct Bell {
  Segment segment{UniqueFd(), 1, 16 << 10};
  Doorbells bells;
  Bell() : bells(segment, 0, one()) {}
  static std::vector<UniqueFd> one() {
    std::vector<UniqueFd> fds;
    fds.emplace_back(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return fds;
  }
};

}  // namespace

// One thread has slept long enough and is about to empty the bell; right then another lies down, and the bell rings for
// it. A ring that the first took away shows as a sleep that lasts to its limit.
TEST(a_thread_that_times_out_does_not_take_another_s_ring) {
  constexpr double kLimit = 30.0;
  for (int round = 0; round < 20; ++round) {
    Bell bell;
    const uint32_t seen = bell.bells.count();
    std::atomic<bool> may_lie_down{false};
    bool first = true;
    before_read = [&] {
      if (!std::exchange(first, false)) return;
      may_lie_down = true;
      // Until the other sleeps, or, if it cannot while we are here, for a moment.
      const double start = now_s();
      while (bell.segment.rank(0).sleepers == 0 && now_s() - start < 0.02) std::this_thread::yield();
      usleep(1000);
      bell.bells.ring_own();
    };
    double slept = 0;
    std::thread sleeper([&] {
      while (!may_lie_down) std::this_thread::yield();
      const double start = now_s();
      bell.bells.sleep(seen, kLimit, {});
      slept = now_s() - start;
    });
    bell.bells.sleep(seen, 1e-3, {});
    before_read = nullptr;
    sleeper.join();
    CHECK(slept < kLimit);
  }
}

TEST(a_ring_before_the_sleep_is_seen) {
  Bell bell;
  const uint32_t seen = bell.bells.count();
  bell.bells.ring_own();
  bell.bells.sleep(seen, 1000.0, {});  // returns, or this test never ends
  CHECK(bell.bells.count() != seen);
}

TEST(one_who_is_woken_already_is_not_woken_again) {
  Bell bell;
  std::atomic<bool> awake{false};
  std::atomic<bool> go_on{false};
  std::thread sleeper([&] {
    after_poll = [&] {
      awake = true;
      while (!go_on) std::this_thread::yield();
    };
    bell.bells.sleep(bell.bells.count(), 1000.0, {});
  });
  while (bell.segment.rank(0).sleepers == 0) std::this_thread::yield();
  while (!awake) bell.bells.ring_own();  // the first may come before it lies down
  const int before = writes;
  CHECK(before <= 1);
  for (int i = 0; i < 100; ++i) bell.bells.ring_own();
  CHECK_EQ(writes.load(), before);
  go_on = true;
  sleeper.join();
}

// Two threads lie down again and again; each waits for a ring of its own. A lost one shows as a sleep to its limit.
TEST(no_ring_is_lost) {
  constexpr int kRings = 1000;
  Bell bell;
  std::atomic<int> rung{0};
  std::atomic<int> heard[2] = {0, 0};
  std::atomic<bool> late{false};
  auto listen = [&](int me) {
    while (heard[me] < kRings) {
      const uint32_t seen = bell.bells.count();
      if (const int now = rung; now != heard[me]) {
        heard[me] = now;
        continue;
      }
      const double start = now_s();
      bell.bells.sleep(seen, 60.0, {});
      if (now_s() - start > 59.0) late = true;
    }
  };
  std::thread first(listen, 0);
  std::thread second(listen, 1);
  for (int i = 1; i <= kRings; ++i) {
    ++rung;
    bell.bells.ring_own();
    while (heard[0] < i || heard[1] < i) std::this_thread::yield();
  }
  first.join();
  second.join();
  CHECK(!late);
}

TEST(input_on_a_socket_ends_the_sleep) {
  Bell bell;
  int ends[2];
  CHECK_EQ(pipe(ends), 0);
  CHECK(!Doorbells::has_input({ends[0]}));
  CHECK_EQ(write(ends[1], "x", 1), ssize_t(1));
  CHECK(Doorbells::has_input({ends[0]}));
  bell.bells.sleep(bell.bells.count(), 1000.0, {ends[0]});
  close(ends[0]);
  close(ends[1]);
}
