// SPDX-License-Identifier: Apache-2.0
// Batches in flight: starts the batches of the plan on their data paths, in the plan's order, and completes their
// entries when the path says that they ended.
//
// execute() runs on the driving thread; ended() and broken() come from any thread. mutex_ guards in_flight_, idle_,
// quick_ and this rank's last words in shared memory. It is not held while a path or a callback runs.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/announcer.h"
#include "engine/device_call.h"
#include "engine/table.h"
#include "host/segment.h"
#include "paths/data_path.h"
#include "paths/paths.h"
#include "watch/metrics.h"
#include "watch/nvtx.h"
#include "watch/recorder.h"
#include "watch/steps.h"
#include "watch/timeline.h"
#include "world/topology.h"

namespace hvd {

class Executor : public BatchEnd {
 public:
  struct Callbacks {
    std::function<void()> ended_elsewhere;           // a batch ended on a thread that does not drive
    std::function<void(const std::string&)> broken;  // the job cannot go on
  };
  // capacity: bytes that a batch may have.
  Executor(const Topology& topology, Table& table, Announcer& announcer, Paths& paths, Segment& segment,
           Timeline& timeline, Steps& steps, const Nvtx& nvtx, Metrics& metrics, Recorder& recorder, int64_t capacity,
           Callbacks callbacks);

  // Starts a batch of tensors. Throws JobAborted; its entries then wait in the table for what the job's end brings.
  void execute(const Batch& batch);

  // Until nothing is in flight; false if that took longer.
  bool drain(double seconds);

  // For those who watch: the batch that is under way for longest.
  struct Oldest {
    double since;
    std::string name;
    const char* kind;
  };
  std::optional<Oldest> oldest();

  // A call of one tensor that needed no plan (quick_call.h) is noted and counted like a batch of its own.
  void began_quickly(const Description& tensor) { note(tensor, false, false); }
  // Returns the time.
  double ended_quickly(const Description& tensor, size_t bytes, double since);
  // Memory of a device: whether such a call can be made of it; nothing has happened yet.
  bool prepare_quickly(const hvd_request& request, const std::shared_ptr<const Variant>& agreed, DeviceCall* call);
  // Once all ranks are there. False: the job ends, or this batch fails on all ranks; the general way says why.
  bool start_quickly(DeviceCall& call);
  // While such a call waits for so long that it sleeps, those who watch shall see it; null: no longer.
  void waits_quickly(const Description* tensor, double since);

  void ended(PlannedBatch& batch, const Status& status) override;
  void broken(const std::string& why) override { callbacks_.broken(why); }

 private:
  struct Flight : PlannedBatch {
    double since = 0;
    int32_t last_rank = -1;  // was ready last
    bool traced = false;
    std::optional<uint64_t> range;  // of nvtx_
    Phases phase_log;
    bool landing = false;  // no longer in flight, not idle yet
  };

  std::unique_ptr<Flight> take_idle();
  void launch(std::unique_ptr<Flight> flight, DataPath& path);
  // Takes a batch out of those in flight; null if it is not among them.
  std::unique_ptr<Flight> land(PlannedBatch& batch);
  void recycle(std::unique_ptr<Flight> flight);
  void note(const Flight& flight, bool over);
  void note(const Description& first, bool others, bool over);
  void trace_begin(Flight& flight);
  void trace_end(const Flight& flight);

  const Topology& topology_;
  Table& table_;
  Announcer& announcer_;
  Paths& paths_;
  Segment& segment_;
  Timeline& timeline_;
  Steps& steps_;
  const Nvtx& nvtx_;
  Metrics& metrics_;
  Recorder& recorder_;
  const int64_t capacity_;
  const Callbacks callbacks_;

  std::mutex mutex_;
  const Description* quick_ = nullptr;  // see waits_quickly
  double quick_since_ = 0;
  std::vector<std::unique_ptr<Flight>> in_flight_;  // in the order of their start
  std::vector<std::unique_ptr<Flight>> idle_;       // used again, so that a batch allocates little
  int landing_ = 0;                                 // flights whose thread is not done with this object yet
  std::condition_variable landed_;
};

}  // namespace hvd
