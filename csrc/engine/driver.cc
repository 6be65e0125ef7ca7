// SPDX-License-Identifier: Apache-2.0
#include "engine/driver.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/affinity.h"
#include "util/clock.h"
#include "util/threads.h"

namespace hvd {
namespace {

// After a caller drove the engine itself it will most likely come back at once: the background thread leaves it alone
// for this long.
constexpr double kCallerGrace = 1e-3;
// After looking this often, a millisecond apart, whether the caller still drives, the background thread waits to be
// told.
constexpr int kShortParks = 10;
constexpr double kLongPark = 0.05;
// After this rank has said something, the background thread looks this often whether there is more.
constexpr double kNap = 500e-6;

}  // namespace

thread_local bool Driver::driving_ = false;

Driver::Driver(const Topology& topology, Segment& segment, Doorbells& bells, Table& table, std::vector<int> sockets,
               std::function<Turn()> progress, Options options)
    : topology_(topology),
      segment_(segment),
      bells_(bells),
      table_(table),
      sockets_(std::move(sockets)),
      progress_(std::move(progress)),
      options_(std::move(options)),
      spin_us_(options_.spin_us) {}

void Driver::start() {
  thread_ = start_thread("hvd-engine", [this] { background(); });
}

void Driver::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  bells_.ring_own();
  unpark();
  thread_.join();
}

Driver::Turn Driver::turn() {
  driving_ = true;
  Turn turn = progress_();
  driving_ = false;
  return turn;
}

// --------------------------------------------------------------------------- the background thread --

void Driver::background() {
  if (!options_.affinity.empty()) pin_this_thread(options_.affinity, topology_.local_rank(), topology_.local_size());
  int parks = 0;  // in a row, during one drive of a caller
  double call_seen = 0;
  uint32_t rung_before = 0;
  bool announced = false;  // since it last slept
  bool napped = false;
  while (!stopping_) {
    bool caller_drives = callers_ > 0;
    if (!caller_drives && now_s() - last_call_ < kCallerGrace) caller_drives = !table_.outstanding();
    if (caller_drives || !drive_mutex_.try_lock()) {
      const double call_now = last_call_;
      parks = call_now == call_seen ? parks + 1 : 0;
      call_seen = call_now;
      if (std::exchange(napped, false)) bells_.ring_own();  // what came meanwhile is for whoever drives
      const uint32_t rung = bells_.count();
      if (rung == rung_before && parks == 0 && sockets_.empty()) park_on_bell(rung);
      else park(parks > kShortParks);
      rung_before = rung;
      continue;
    }
    uint32_t seen = bells_.count();
    Turn turn = this->turn();
    drive_mutex_.unlock();
    announced |= turn.announced;
    if (turn.did || stopping_) continue;
    napped = std::exchange(announced, false);
    if (napped) nap(seen, std::min(turn.idle_for, kNap));
    else sleep(seen, turn.idle_for, false);
  }
}

// Whoever queues one tensor queues the next in a moment. To be woken for each would take the core from that caller
// again and again, where there is no other: until the nap is over he need not ring, since this thread looks by itself
// then.
void Driver::nap(uint32_t seen, double seconds) {
  naps_ = true;
  sleep(seen, seconds, false);
  naps_ = false;
  owed_ = false;
}

// Leaves the engine to the caller who drives it. A caller who drives for long has to say when it stops; one who
// makes many short calls is spared that.
void Driver::park(bool caller_stays) {
  std::unique_lock<std::mutex> lock(park_mutex_);
  parked_ = caller_stays ? kUntilCalled : kBriefly;
  if (callers_ > 0 || !table_.outstanding())
    parked_changed_.wait_for(lock, std::chrono::duration<double>(caller_stays && callers_ > 0 ? kLongPark : 1e-3));
  parked_ = kNotParked;
}

// While callers come and go without a ring, by the short way, looking after them every millisecond would only take the
// core from one of them: whoever has work for this rank rings.
void Driver::park_on_bell(uint32_t seen) {
  parked_ = kOnBell;
  if (callers_ > 0 || !table_.outstanding()) bells_.sleep(seen, kLongPark, {});
  parked_ = kNotParked;
}

void Driver::unpark() {
  if (parked_ == kOnBell) bells_.ring_own();
  std::lock_guard<std::mutex> lock(park_mutex_);
  parked_changed_.notify_one();
}

// Nothing is forgotten: this is called after the tensor was queued, and a nap that is seen here, like a drive that is
// not seen here, takes the queue after that. Whoever naps, and cannot drive then, rings for the one who does.
void Driver::queued(bool patient) {
  if (patient && naps_ && callers_ == 0) {
    owed_ = true;
    return;
  }
  bells_.ring_own();
  // Once is enough: it may have to wait for a core.
  if (callers_ == 0 && parked_ != kNotParked && parked_.exchange(kNotParked) != kNotParked) unpark();
}

// ------------------------------------------------------------------------------------------ callers --

Status Driver::wait(Submission& submission, double timeout_s) {
  auto done = [&] { return submission.done.load(std::memory_order_acquire); };
  double deadline = timeout_s < 0 ? 1e18 : now_s() + timeout_s;
  while (!done()) {
    ++callers_;
    if (guests_ == 0 && drive_mutex_.try_lock()) {
      drive(submission, deadline);
      last_call_ = now_s();
      drive_mutex_.unlock();
      --callers_;
      bool others = table_.hand_over();
      if (others || parked_ == kUntilCalled) unpark();
    } else {
      --callers_;
      bells_.ring_own();  // whoever drives may have looked at the queue before this submission was in it
      table_.wait(submission, std::min(deadline - now_s(), 0.02));
    }
    if (!done() && now_s() >= deadline) return {HVD_TIMEOUT, "not done yet"};
  }
  return submission.status;
}

bool Driver::drive(Submission& until, double deadline) {
  while (!until.done.load(std::memory_order_acquire)) {
    if (guests_ > 0) return false;
    uint32_t seen = bells_.count();
    Turn turn = this->turn();
    if (turn.did) continue;
    if (until.done.load(std::memory_order_acquire)) break;
    double left = deadline - now_s();
    if (left <= 0) return false;
    sleep(seen, std::min(left, turn.idle_for), true);
  }
  return true;
}

void Driver::exclusively(const std::function<void()>& body) {
  ++guests_;
  ++callers_;
  bells_.ring_own();  // whoever drives may be asleep
  {
    std::lock_guard<std::mutex> drive(drive_mutex_);
    --guests_;
    --callers_;
    driving_ = true;
    try {
      body();
    } catch (...) {
      driving_ = false;
      throw;
    }
    driving_ = false;
  }
  if (table_.hand_over()) unpark();
}

// ----------------------------------------------------------------------------------------- sleeping --

void Driver::sleep(uint32_t seen, double seconds, bool may_spin) {
  if (may_spin && spin_us_ > 0 && spin(seen)) return;
  if (segment_.aborted() && !table_.over()) return;  // there is an end to be made of it
  // Once the job is over nobody reads them any more, and those of ranks that left have input for ever.
  static const std::vector<int> none;
  bells_.sleep(seen, seconds, table_.over() ? none : sockets_);
}

// True if there is something to do.
bool Driver::spin(uint32_t seen) {
  double start = now_s();
  bool yields = options_.crowded || segment_.shares_core(topology_.local_rank(), core_, start);
  do {
    for (int i = 0; i < (yields ? 1 : 32); ++i) {
      if (bells_.count() != seen) return true;
      cpu_relax();
    }
    if (yields) sched_yield();
    if (Doorbells::has_input(sockets_)) return true;
  } while ((now_s() - start) * 1e6 < spin_us_);
  return false;
}

}  // namespace hvd
