// SPDX-License-Identifier: Apache-2.0
// How the bytes of a planned batch move: the seam between the engine and a kind of memory or wire.
//
//   paths/host   host memory: shared memory on a host, sockets or MPI between hosts. Runs inside start().
//
// A path whose work goes on by itself (a device's streams) returns from start() at once and reports later. "Ended" then
// means enqueued: what a framework's stream has to wait for is an event the path leaves with the tensor.
//
// Every rank of a set starts the same batches in the same order, the plan's. They may end in any order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "paths/phases.h"
#include "paths/tensor.h"
#include "util/device_work.h"
#include "util/settings.h"
#include "util/status.h"
#include "world/set_layout.h"

namespace hvd {

// A batch of the plan with what this rank has for it. Valid from start() until it is reported as ended.
struct PlannedBatch {
  uint64_t seq = 0;  // the same on every rank, and growing
  int32_t kind = 0;  // hvd_kind
  int32_t process_set = 0;
  int32_t device = -1;  // agreed by all: -1 for host memory. Which device it is, each tensor says for this rank
  std::shared_ptr<const SetLayout> layout;
  std::vector<Tensor*> tensors;                        // null: this rank has joined and contributes zeros
  std::vector<std::shared_ptr<const Variant>> agreed;  // [tensors] description, and all Shares where they vary
  Phases* phases = nullptr;  // where a path may note what the time goes into; null: nobody asks
};

// Who is told how a batch ended. Any thread, also from inside start().
class BatchEnd {
 public:
  virtual ~BatchEnd() = default;
  // Exactly once for every batch that was started. A failure is that of this batch on every rank of its set, and its
  // text reaches their handles; the job goes on. Neither the batch nor its memory is touched afterwards.
  virtual void ended(PlannedBatch& batch, const Status& status) = 0;
  // This rank cannot go on together with the others: everything fails everywhere with this text, abort() follows, and
  // what is under way still has to be reported.
  virtual void broken(const std::string& why) = 0;
};

class DataPath {
 public:
  virtual ~DataPath() = default;

  // Whether it carries this kind of memory for these ranks. Every rank must come to the same answer, so it may only
  // rest on what all of them know.
  virtual bool serves(int32_t device, const SetLayout& layout) const = 0;

  // A request of this rank, on the thread that submits it: what has to be noted before the caller goes on, such as a
  // moment of its stream. `before`: the request before it in the same submission, or null. Throws Refused.
  virtual void prepare(const hvd_request& /*request*/, Tensor& /*tensor*/, const Tensor* /*before*/) {}

  // The rest runs on the driving thread, except where it says otherwise. remove_set may come while batches of the set
  // are under way: they still end.
  virtual void add_set(int32_t /*id*/, const std::shared_ptr<const SetLayout>& /*layout*/) {}
  virtual void remove_set(int32_t /*id*/) {}
  // Some settings have changed, on every rank before the same batch. Which may, control/knobs.cc says.
  virtual void tune(const Settings& /*settings*/) {}
  // Starts a batch. Throws JobAborted instead of reporting its end when the job cannot go on.
  virtual void start(PlannedBatch& batch, BatchEnd& end) = 0;
  // Whether start() of a batch like this one takes nothing but its tensors' memory: no word among the ranks, and no
  // other path. Ranks that know of each other that they are at it then need no plan. The same on every rank.
  virtual bool needs_no_plan(const PlannedBatch& /*batch*/) const { return false; }
  // Ends what is under way, as soon as its memory is no longer touched. Any thread, also while start() runs.
  virtual void abort(const std::string& why) = 0;
  // After abort(): waits, for so long at most, until no device touches the memory of a batch that start() gave up.
  virtual void leave_memory(double /*seconds*/) {}

  // For the stall watch, from any thread: the global rank that holds up what is under way, or -1.
  virtual int waiting_for() const { return -1; }
  // Device memory, any thread: copies a completed output of the engine's own to the caller's memory, in the order of
  // the caller's stream, and has the engine's back. Throws Refused.
  virtual void copy_output(Tensor& /*tensor*/, void* /*to*/, void* /*stream*/) {}
  // Any thread, where batches were traced: what a device has done since this was last asked. last: what it
  // has not done yet may be forgotten.
  virtual std::vector<DeviceWork> take_work(bool /*last*/) { return {}; }
  // What it found and what it does, as a JSON object, e.g. for `horovodrun --check`; "" if there is nothing to say.
  virtual std::string report() { return ""; }
  // What a forked child must close.
  virtual std::vector<int> descriptors() const { return {}; }
};

// A word among the ranks of a set before a path can work there, e.g. the id of a communicator that one of them makes.
class Courier {
 public:
  virtual ~Courier() = default;
  // The first member's bytes reach all members. Inside start() of a path other than the host's, at most once a batch,
  // and on every rank of the set alike. Waits for them; throws JobAborted.
  virtual void from_first_member(const PlannedBatch& batch, void* bytes, size_t n) = 0;
};

}  // namespace hvd
