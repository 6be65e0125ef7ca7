// SPDX-License-Identifier: Apache-2.0
// The data path of GPU memory. A batch has ended when it is on a stream; its tensors carry the point of that stream
// when their results are there, and nobody waits for the device.
//
// Driving thread only, but for prepare(), abort(), copy_output() and report(). mutex_ guards teams_, leaving_ and
// tools_ against those.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "paths/cuda/ready.h"
#include "paths/cuda/team.h"
#include "paths/data_path.h"
#include "paths/host/host_path.h"
#include "util/settings.h"
#include "world/topology.h"

namespace hvd::cuda {

class CudaPath : public DataPath {
 public:
  CudaPath(const Topology& topology, HostPath& host, const Settings& settings)
      : topology_(topology), host_(host), settings_(settings) {}
  ~CudaPath() override;

  bool serves(int32_t device, const SetLayout& layout) const override;
  void prepare(const hvd_request& request, Tensor& tensor, const Tensor* before) override;
  void remove_set(int32_t id) override;
  void tune(const Settings& settings) override;
  void start(PlannedBatch& batch, BatchEnd& end) override;
  bool needs_no_plan(const PlannedBatch& batch) const override;
  void abort(const std::string& why) override;
  void leave_memory(double seconds) override;
  void copy_output(Tensor& tensor, void* to, void* stream) override;
  std::vector<DeviceWork> take_work(bool last) override;
  std::string report() override;
  std::vector<int> descriptors() const override;

 private:
  Team* find_team(const PlannedBatch& batch) const;  // null if there is none yet
  Team& team_of(const PlannedBatch& batch);
  std::shared_ptr<Tools> tools_of(int device);
  // Ends teams that have left.
  void tidy();
  int own_device(const PlannedBatch& batch) const;

  const Topology& topology_;
  HostPath& host_;
  Settings settings_;
  mutable std::mutex mutex_;
  std::map<int, std::shared_ptr<Tools>> tools_;                  // by device
  std::map<int32_t, std::vector<std::shared_ptr<Team>>> teams_;  // by process set, the newest last
  std::vector<std::shared_ptr<Team>> leaving_;                   // of sets that were removed
  ReadyPoints ready_;
  std::atomic<int> used_device_{-1};  // where a rank that has joined makes its zeros
  std::atomic<bool> traced_{false};   // a timeline runs
  std::atomic<bool> aborted_{false};
};

}  // namespace hvd::cuda
