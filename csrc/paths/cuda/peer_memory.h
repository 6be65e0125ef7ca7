// SPDX-License-Identifier: Apache-2.0
// The memory that a rank shows the other ranks of its host, and theirs as this process maps it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "paths/cuda/arguments.h"
#include "paths/cuda/device.h"

namespace hvd::cuda {

// kPeerBytes of a GPU that others map. Freeing what another process still maps is undefined, and that process may live
// on after this engine stops: so a block is kept for the next engine of this process and never freed.
class ShownMemory {
 public:
  explicit ShownMemory(std::shared_ptr<Device> device);
  ~ShownMemory();
  ShownMemory(const ShownMemory&) = delete;
  ShownMemory& operator=(const ShownMemory&) = delete;
  Address address() const { return address_; }
  const IpcHandle& handle() const { return handle_; }

 private:
  std::shared_ptr<Device> device_;
  Address address_ = 0;
  IpcHandle handle_{};
};

// Everybody's memory, mapped.
class PeerMemory {
 public:
  // others[me] is ignored. Throws CudaError if one cannot be mapped.
  PeerMemory(std::shared_ptr<Device> device, std::unique_ptr<ShownMemory> mine, int me,
             const std::vector<IpcHandle>& handles);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  char* of(int member) const { return pointer_to(mapped_[static_cast<size_t>(member)]); }

 private:
  std::shared_ptr<Device> device_;
  std::unique_ptr<ShownMemory> mine_;
  const int me_;
  std::vector<Address> mapped_;
};

}  // namespace hvd::cuda
