// SPDX-License-Identifier: Apache-2.0
// Counters of one engine, readable at any time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace hvd {

using Counter = std::atomic<int64_t>;

// How many took how long.
class Histogram {
 public:
  // Upper bounds in microseconds; what took longer than the last is counted after it.
  static constexpr std::array<int64_t, 19> kBounds = {10,     20,      50,      100,     200,     500,    1000,
                                                      2000,   5000,    10000,   20000,   50000,   100000, 200000,
                                                      500000, 1000000, 2000000, 5000000, 10000000};
  void add(int64_t us);
  std::string json() const;

 private:
  std::array<Counter, kBounds.size() + 1> counts_{};
  Counter sum_{0};
};

struct Metrics {
  explicit Metrics(int rank = 0, int size = 1) : waited_for(static_cast<size_t>(size)), rank_(rank) {}

  Counter submitted{0};      // tensors handed in
  Counter batches{0};        // batches executed
  Counter tensors{0};        // tensors executed
  Counter fused_tensors{0};  // of these, in batches of two or more
  Counter bytes{0};          // payload of this rank
  Counter execute_us{0};     // time inside batches
  Counter cached_announcements{0};
  Counter full_announcements{0};
  Counter plans{0};
  Counter errors{0};
  Counter fusion_bytes{0};           // payload of batches of two or more,
  Counter fusion_capacity_bytes{0};  // and what those batches had room for
  Counter wait_us{0};                // this rank waited for others
  std::vector<Counter> waited_for;   // [size] of that, for each rank
  Histogram latency;                 // of a tensor, from being handed in to its end
  Counter steps{0};
  Counter step_us{0};       // time between the first mark of a step and the last
  Counter last_step_us{0};  // the last step's

  // A batch begins; its tensors were announced by `ready`, and last_rank was the last to announce them. Time is counted
  // once, however many tensors wait. The driving thread.
  void batch_starts(double now, double ready, int last_rank);
  struct Batch {
    const char* kind;  // e.g. "ALLREDUCE"
    int64_t tensors;
    int64_t bytes;
    int64_t capacity;  // bytes a batch may have
    double started;
  };
  void batch_ended(const Batch& batch, double now);
  // A step of the training is done.
  void step(double now);

  // Of the engine at this moment; the rest of the object.
  struct Gauges {
    int64_t queue_depth;
    int64_t buffer_bytes;
    int64_t restarts;
  };
  std::string json(const Gauges& gauges) const;

 private:
  struct Kind {
    const char* name;
    Counter count{0}, bytes{0}, us{0};
  };

  const int rank_;
  std::atomic<double> waiting_from_{0};  // no waiting before this is counted any more
  std::atomic<double> last_step_{0};
  std::array<Kind, 8> kinds_{{{"ALLREDUCE"},
                              {"ALLGATHER"},
                              {"BROADCAST"},
                              {"ALLTOALL"},
                              {"BARRIER"},
                              {"REDUCESCATTER"},
                              {"ADASUM"},
                              {"OTHER"}}};
};

}  // namespace hvd
