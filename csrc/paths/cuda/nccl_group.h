// SPDX-License-Identifier: Apache-2.0
// One NCCL communicator: a set's members with one GPU each.
//
// It is made non-blocking: the members wait for each other in calls that come back at once and are asked about, so that
// a rank that died ends the wait. But then every collective would start a thread inside of NCCL, which takes 0.1 ms:
// where NCCL can, a blocking communicator is split off for them. Driving thread only, but for abort().
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "paths/cuda/convert.h"
#include "paths/cuda/device.h"
#include "paths/cuda/group.h"
#include "paths/cuda/nccl.h"

namespace hvd::cuda {

struct NcclError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class NcclGroup : public Group {
 public:
  // Waits until all members have come. stream: after which nothing is left to do. `check` throws when the job was
  // aborted.
  NcclGroup(const Nccl& nccl, std::shared_ptr<Device> device, Converter& converter, const NcclId& id, int me, int n,
            Stream stream, std::function<void()> check);
  ~NcclGroup() override;

  const char* name() const override { return "NCCL"; }
  bool any_stream() const override { return true; }
  int travels_as(int dtype) const override;
  void begin() override;
  void end() override;
  void all_reduce(const Reduce& how, const void* in, void* out, size_t count, Stream stream) override;
  void reduce_scatter(const Reduce& how, const void* in, void* out, const std::vector<size_t>& begins,
                      const std::vector<size_t>& counts, Stream stream) override;
  void all_gather(const void* in, char* out, const std::vector<size_t>& begins, const std::vector<size_t>& bytes,
                  Stream stream) override;
  void broadcast(const void* in, void* out, size_t bytes, int root, Stream stream) override;
  void all_to_all(const char* in, char* out, const std::vector<size_t>& bytes, Stream stream) override;
  void abort() override;

 private:
  void connect(const NcclId& id);
  void split_off();
  // Ends a communicator in good order if it can.
  void retire(NcclComm comm);
  void abort_now();
  // The operator, and whether the results still have to be scaled.
  std::pair<int, bool> operator_for(const Reduce& how);
  void check(NcclResult result, const char* call);
  // Until the communicator has done what it was asked for.
  void settle(const char* call);
  template <class Body>
  void grouped(const char* call, Body body);

  const Nccl& nccl_;
  std::shared_ptr<Device> device_;
  Converter& converter_;
  const std::function<void()> check_job_;
  const Stream stream_;
  std::mutex mutex_;           // the two against abort()
  NcclComm comm_ = nullptr;    // that collectives use
  NcclComm parent_ = nullptr;  // that it was split off, if it was
  NcclComm child_ = nullptr;   // on its way, written by a thread of NCCL
  std::atomic<bool> aborted_{false};
  std::thread aborter_;  // NCCL may take its time, and who calls abort() has none
  int depth_ = 0;
  std::map<std::pair<int, double>, int> scaled_sums_;  // (type, factor) -> operator
  std::vector<std::function<void()>> after_;           // what follows when the group of calls has ended
};

}  // namespace hvd::cuda
