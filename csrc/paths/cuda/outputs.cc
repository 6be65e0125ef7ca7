// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/outputs.h"

#include "paths/cuda/tiles.h"

namespace hvd::cuda {

Outputs::~Outputs() {
  for (auto& [size, block] : idle_) device_->free(block.address);
}

std::shared_ptr<Outputs::Block> Outputs::take(size_t bytes, Stream stream) {
  size_t wanted = round_up(bytes ? bytes : 1, 1 << 16);
  Block found;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = idle_.lower_bound(wanted);
    if (it != idle_.end() && it->first <= 2 * wanted) {
      found = std::move(it->second);
      idle_.erase(it);
    }
  }
  if (!found.address) {
    found.bytes = wanted;
    found.address = device_->allocate(wanted, "the output of a collective", "Send less at a time.");
  }
  if (found.last_use) found.last_use->precede(stream);
  found.last_use.reset();
  auto self = shared_from_this();
  return {new Block(std::move(found)), [self](Block* block) {
            self->give_back(std::move(*block));
            delete block;
          }};
}

void Outputs::give_back(Block block) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  size_t bytes = block.bytes;
  idle_.emplace(bytes, std::move(block));
}

}  // namespace hvd::cuda
