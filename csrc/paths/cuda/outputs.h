// SPDX-License-Identifier: Apache-2.0
// Device memory for outputs whose size only the plan knows (allgather, alltoall). The caller copies them into memory of
// its framework in the order of its stream; a block is used again when that copy is done.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "paths/cuda/device.h"

namespace hvd::cuda {

class Outputs : public std::enable_shared_from_this<Outputs> {
 public:
  explicit Outputs(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  ~Outputs();

  // A block. Nothing on `stream` may still use it: the stream waits for what does.
  struct Block {
    Address address = 0;
    size_t bytes = 0;
    EventPtr last_use;  // set by whoever puts further work on it
  };
  std::shared_ptr<Block> take(size_t bytes, Stream stream);

 private:
  void give_back(Block block) noexcept;

  std::shared_ptr<Device> device_;
  std::mutex mutex_;
  std::multimap<size_t, Block> idle_;  // by size
};

}  // namespace hvd::cuda
