// SPDX-License-Identifier: Apache-2.0
// How kernels of one GPU hear that the job has ended.
#pragma once

#include <memory>

#include "paths/cuda/arguments.h"
#include "paths/cuda/device.h"

namespace hvd::cuda {

class StopWord {
 public:
  explicit StopWord(std::shared_ptr<Device> device);
  ~StopWord();
  StopWord(const StopWord&) = delete;
  StopWord& operator=(const StopWord&) = delete;

  Aborted words() const;
  // Any thread. What is on the device leaves, and what comes later does not begin.
  void set() noexcept;

 private:
  std::shared_ptr<Device> device_;
  Pinned on_host_;
  Address here_ = 0;
};

}  // namespace hvd::cuda
