// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/stop_word.h"

#include "util/log.h"

namespace hvd::cuda {
namespace {

constexpr size_t kBytes = 4096;

}  // namespace

StopWord::StopWord(std::shared_ptr<Device> device)
    : device_(std::move(device)),
      on_host_(*device_, kBytes),
      here_(device_->allocate(kBytes, "a word", "Leave the engine more memory.")) {
  __atomic_store_n(reinterpret_cast<uint32_t*>(on_host_.data()), 0u, __ATOMIC_RELEASE);
  InContext in(*device_);
  Stream stream = device_->stream(kRescueLane);
  HVD_CUDA(fill_async, here_, 0, kBytes, stream);
  HVD_CUDA(stream_synchronize, stream);
}

StopWord::~StopWord() {
  try {
    device_->drained(device_->stream(kRescueLane), 1.0);  // set() may be on its way
  } catch (const CudaError&) {                            // the process ends and the driver has gone
  }
  device_->free(here_);
}

Aborted StopWord::words() const {
  return {reinterpret_cast<const uint32_t*>(here_), reinterpret_cast<const uint32_t*>(on_host_.address())};
}

void StopWord::set() noexcept {
  __atomic_store_n(reinterpret_cast<uint32_t*>(on_host_.data()), 1u, __ATOMIC_RELEASE);
  try {
    InContext in(*device_);
    HVD_CUDA(stream_write_value, device_->stream(kRescueLane), here_, 1, 0);
  } catch (const CudaError& e) {
    HVD_LOG(Warning, "A GPU cannot be told that the job has ended: " << e.what());
  }
}

}  // namespace hvd::cuda
