// SPDX-License-Identifier: Apache-2.0
// The NCCL communicators of a set, whose members have one GPU each: made together, ended together.
//
// The first is made non-blocking: the members wait for each other in calls that come back at once and are asked about,
// so that a rank that died ends the wait. But then every collective would start a thread inside of NCCL, which takes
// 0.1 ms: where NCCL can, blocking communicators are split off for them. Driving thread only, but for abort().
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "paths/cuda/device.h"
#include "paths/cuda/nccl.h"

namespace hvd::cuda {

struct NcclError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Communicator {
  NcclComm raw = nullptr;                             // nullptr: aborted
  std::map<std::pair<int, double>, int> scaled_sums;  // (type, factor) -> operator
};

class Communicators {
 public:
  // Waits until all members have come. More than one need an NCCL that can split them off. `check_job` throws when the
  // job was aborted.
  Communicators(const Nccl& nccl, std::shared_ptr<Device> device, const NcclId& id, int me, int n, int count,
                std::function<void()> check_job);
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  int count() const { return static_cast<int>(all_.size()); }
  // The calls of `body` on one of them, carried out as one.
  void together(int which, const std::function<void(Communicator&)>& body);
  // Throws for what is an error.
  void check(const Communicator& one, NcclResult result, const char* call) const;
  // Ends what is on the device. Any thread.
  void abort();
  // Nothing of theirs is on the device any more, though that may be busy for others.
  void rest() { at_rest_ = true; }

 private:
  void connect(const NcclId& id, int me, int n);
  void split_off(int me);
  // Until it has done what it was asked for.
  void settle(const Communicator& one, const char* call);
  // Ends one in good order if it can.
  void retire(const Communicator& one);
  void abort_now();

  const Nccl& nccl_;
  const std::shared_ptr<Device> device_;
  const std::function<void()> check_job_;
  std::mutex mutex_;               // what follows against abort()
  std::vector<Communicator> all_;  // that collectives use
  Communicator parent_;            // that they were split off, if they were
  NcclComm child_ = nullptr;       // on its way, written by a thread of NCCL
  std::atomic<bool> aborted_{false};
  std::thread aborter_;  // NCCL may take its time, and who calls abort() has none
  bool at_rest_ = false;
};

}  // namespace hvd::cuda
