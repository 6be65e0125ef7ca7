// SPDX-License-Identifier: Apache-2.0
// How this rank's part in the job comes to its end in good order: who wants to leave, and why. Any thread; mutex_
// guards the texts.
//
// A rank that leaves asks the coordinator to plan the shutdown, which reaches everybody as part of the plan. The
// goodbye on its watch links is for those whom the plan does not reach, because they are stuck inside a collective.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "control/message.h"
#include "world/topology.h"

namespace hvd {

class Ending {
 public:
  explicit Ending(const Topology& topology) : topology_(topology) {}

  // This rank wants to leave. reason "": in good order.
  void ask(const std::string& reason);
  // Once, after ask(): the driving thread passes it on.
  bool take_request(std::string* reason);

  // The plan says that a rank leaves; the text for whatever is outstanding.
  std::string planned(const Departure& departure);
  bool is_planned() const { return planned_; }

  // A neighbour hangs up in good order and says why: "rank 3 on node7 left".
  void heard_goodbye(const std::string& cause);
  bool heard() const { return heard_at_ > 0; }
  // It said so that many seconds ago.
  double since_goodbye() const;
  // The text for whatever is outstanding after a goodbye.
  std::string goodbye_text();

  // What this rank tells its neighbours when it hangs up: who left first, as far as it knows.
  std::string cause();

 private:
  std::string describe(const Departure& departure) const;

  const Topology& topology_;
  std::atomic<bool> asked_{false};
  std::atomic<bool> planned_{false};
  std::atomic<double> heard_at_{0};
  std::mutex mutex_;
  bool taken_ = false;
  std::string reason_;  // this rank's own
  std::string cause_;   // who left first, and why
};

// The documented text every operation gets that is outstanding at, or submitted after, a shutdown.
extern const char kShutdownText[];

}  // namespace hvd
