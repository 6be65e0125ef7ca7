// SPDX-License-Identifier: Apache-2.0
// Who drives the engine, and how those wait who do not.
//
// Whoever drives calls progress() again and again: normally the background thread, asleep on its doorbell and sockets
// in between. A thread that waits for a result takes over and drives itself, which saves two context switches on every
// blocking call; the background thread then stays away for a while.
//
// drive_mutex_ says who drives; it is held while progress() runs, and guards all that is "driving thread only" in other
// rooms. park_mutex_ guards nothing but the background thread's sleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/submission.h"
#include "engine/table.h"
#include "host/doorbells.h"
#include "host/segment.h"
#include "util/clock.h"
#include "util/cores.h"
#include "util/status.h"
#include "world/topology.h"

namespace hvd {

class Driver {
 public:
  struct Turn {
    bool did;                // something; look again at once
    double idle_for;         // else: seconds after which to look again even if nobody rings
    bool announced = false;  // what this rank has queued
  };
  struct Options {
    double spin_us = 0;    // how long a wait spins before it sleeps
    bool crowded = false;  // more ranks than cores on this host: a spin offers its core to the others
    std::string affinity;  // cores for the background thread, see affinity.h
  };
  // sockets: those whose input is work for progress().
  Driver(const Topology& topology, Segment& segment, Doorbells& bells, Table& table, std::vector<int> sockets,
         std::function<Turn()> progress, Options options);
  ~Driver() { stop(); }

  // The background thread.
  void start();
  void stop();

  // Something was queued whose caller does not wait for it at once.
  // patient: he will wait or look later, so that the end of a nap is soon enough.
  void queued(bool patient);
  // Somebody looks whether it is done.
  void hurry() {
    if (owed_ && owed_.exchange(false)) bells_.ring_own();
  }
  // Waits until the submission is done, driving if nobody else does. timeout_s < 0: for ever.
  Status wait(Submission& submission, double timeout_s);
  // Runs a body that drives if nobody else does, and says what it said; false otherwise.
  template <typename Body>
  bool if_free(Body body);
  // Runs a body as if it drove: nobody else does meanwhile.
  void exclusively(const std::function<void()>& body);
  // How long waits spin from now on. Driving thread.
  void set_spin(double microseconds) { spin_us_ = microseconds; }
  // Whether the calling thread drives (any engine: there is one, but for tests).
  static bool drives_here() { return driving_; }

 private:
  void background();
  void nap(uint32_t seen, double seconds);
  void park(bool caller_stays);
  void park_on_bell(uint32_t seen);
  void unpark();
  bool drive(Submission& until, double deadline);
  // Runs one turn; drive_mutex_ is held.
  Turn turn();
  void sleep(uint32_t seen, double seconds, bool may_spin);
  bool spin(uint32_t seen);

  const Topology& topology_;
  Segment& segment_;
  Doorbells& bells_;
  Table& table_;
  const std::vector<int> sockets_;
  const std::function<Turn()> progress_;
  const Options options_;
  double spin_us_;  // whoever drives

  static thread_local bool driving_;
  CoreLeaver core_;  // used by whoever drives
  std::mutex drive_mutex_;
  std::atomic<int> callers_{0};       // threads that drive, or are about to
  std::atomic<int> guests_{0};        // threads in exclusively(): who drives makes room for them
  std::atomic<double> last_call_{0};  // when a caller last drove
  std::mutex park_mutex_;
  std::condition_variable parked_changed_;
  enum Parked { kNotParked, kBriefly, kUntilCalled, kOnBell };
  std::atomic<Parked> parked_{kNotParked};  // the background thread
  std::atomic<bool> naps_{false};           // the background thread: see nap
  std::atomic<bool> owed_{false};           // somebody has queued during a nap and did not ring
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

template <typename Body>
bool Driver::if_free(Body body) {
  if (driving_) return false;  // a callback of the engine's
  ++callers_;
  bool result = false;
  if (guests_ == 0 && drive_mutex_.try_lock()) {
    driving_ = true;
    result = body();
    driving_ = false;
    last_call_ = now_s();
    drive_mutex_.unlock();
  }
  --callers_;
  if (result && (table_.hand_over() || parked_ == kUntilCalled)) unpark();
  return result;
}

}  // namespace hvd
