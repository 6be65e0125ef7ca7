// SPDX-License-Identifier: Apache-2.0
// How ranks of one host keep in step: each publishes how far it is, in a word of shared memory that only
// grows, and waits for the others' words. There is no barrier object to get stuck or to be left behind.
//
//   progress = sequence number of the batch << 24 | step within it
//
// The same batch has the same number on all ranks, so a comparison is enough, whatever process sets ran in
// between.
#pragma once

#include <cstdint>
#include <vector>

#include "host/segment.h"
#include "util/cores.h"

namespace hvd {

class Lane {
 public:
  // `roomy`: there is a core for every rank of this host. `alone`: there are no other hosts.
  Lane(Segment& segment, int local_rank, double spin_us, bool roomy, bool alone)
      : segment_(segment), me_(local_rank), spin_us_(spin_us), roomy_(roomy), alone_(alone) {}

  // Starts a batch among these local ranks. `light` batches use only the staging slot of their parity and
  // may follow one another among the same ranks without waiting for stragglers.
  void begin(uint64_t seq, const std::vector<int>& local_ranks, bool light);
  void end();

  // Steps of the running batch, counted from 1. reserve(n) makes room for n more and returns the first.
  uint32_t reserve(uint32_t n);
  void publish(uint32_t step);
  void wait(int local_rank, uint32_t step);
  void wait_all(uint32_t step);

  void set_spin(double microseconds) { spin_us_ = microseconds; }

  Segment& segment() { return segment_; }
  int me() const { return me_; }
  bool light() const { return light_; }
  int parity() const { return static_cast<int>(seq_ & 1); }
  // Throws JobAborted if the job has ended.
  void check();
  // What keeps this rank in the running batch: a local rank that lags behind, or -1. For the stall watch.
  int waiting_for() const { return waiting_for_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kEnd = (1u << 24) - 1;
  void wait_until(int local_rank, uint64_t target);
  bool shares_core(int local_rank, double now);
  void even_out(double now);

  Segment& segment_;
  int me_;
  double spin_us_;
  bool roomy_;
  bool alone_;
  CoreLeaver core_;
  double looked_at_ = 0;
  uint64_t seq_ = 0;
  uint32_t next_step_ = 1;
  bool light_ = false;
  std::vector<int> ranks_;
  std::atomic<int> waiting_for_{-1};
};

}  // namespace hvd
