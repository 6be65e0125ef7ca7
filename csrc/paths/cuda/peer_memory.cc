// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/peer_memory.h"

#include <map>
#include <mutex>

namespace hvd::cuda {
namespace {

struct Kept {
  std::mutex mutex;
  std::map<int, std::vector<Address>> blocks;  // by device
};

Kept& kept() {
  static auto* all = new Kept;  // outlives every engine
  return *all;
}

}  // namespace

ShownMemory::ShownMemory(std::shared_ptr<Device> device) : device_(std::move(device)) {
  {
    std::lock_guard<std::mutex> lock(kept().mutex);
    std::vector<Address>& blocks = kept().blocks[device_->number];
    if (!blocks.empty()) {
      address_ = blocks.back();
      blocks.pop_back();
    }
  }
  if (!address_)
    address_ = device_->allocate(kPeerBytes, "what this rank shows the others of its host",
                                 "Leave the engine more memory, or set HOROVOD_GPU_OPERATIONS=NCCL or host.");
  InContext in(*device_);
  HVD_CUDA(ipc_memory_handle, &handle_, address_);
  Stream stream = device_->stream(0);
  HVD_CUDA(fill_async, address_, 0, kSmallOffset, stream);  // flags and signals count from 0 again
  HVD_CUDA(stream_synchronize, stream);
}

ShownMemory::~ShownMemory() {
  std::lock_guard<std::mutex> lock(kept().mutex);
  kept().blocks[device_->number].push_back(address_);
}

PeerMemory::PeerMemory(std::shared_ptr<Device> device, std::unique_ptr<ShownMemory> mine, int me,
                       const std::vector<IpcHandle>& handles)
    : device_(std::move(device)), mine_(std::move(mine)), me_(me), mapped_(handles.size(), 0) {
  InContext in(*device_);
  mapped_[static_cast<size_t>(me)] = mine_->address();
  for (size_t i = 0; i < handles.size(); ++i) {
    if (static_cast<int>(i) == me) continue;
    Result result = driver().ipc_memory_open(&mapped_[i], handles[i], kIpcLazyPeerAccess);
    if (result == kSuccess) continue;
    mapped_[i] = 0;
    for (size_t k = 0; k < i; ++k)
      if (static_cast<int>(k) != me) driver().ipc_memory_close(mapped_[k]);
    check(result, kCallNames.ipc_memory_open);
  }
}

PeerMemory::~PeerMemory() {
  Context popped = nullptr;
  if (driver().context_push(device_->context()) != kSuccess) return;
  for (size_t i = 0; i < mapped_.size(); ++i)
    if (static_cast<int>(i) != me_) driver().ipc_memory_close(mapped_[i]);
  driver().context_pop(&popped);
}

}  // namespace hvd::cuda
