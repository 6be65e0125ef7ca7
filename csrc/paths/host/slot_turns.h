// SPDX-License-Identifier: Apache-2.0
// Where the chunks of a collective lie in the staging memory of a rank: one behind the other and around, from one
// collective to the next.
//
//   room of 2 MiB    |  256 KiB  |  256 KiB  |  ...  |  256 KiB  |
//   first allreduce      chunk 0
//   the next                         chunk 0
//
// A line that is written again soon is still in the private cache of the core that read it, and has to be called back.
// One that was written megabytes ago has gone to the cache that the cores share: 256 KiB then take half as long.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "util/round.h"

namespace hvd {

class SlotTurns {
 public:
  // A collective in chunks of so many bytes, in a room of so many, or as many as two chunks take; `most` are there,
  // which nobody reads any more. Ranks that have begun the same collectives agree on where chunks are.
  void begin(size_t room, size_t most, size_t chunk, uint32_t chunks) {
    stride_ = std::clamp(round_up(chunk, kAlign), size_t{1}, most / 2);
    places_ = std::clamp(room, 2 * stride_, most) / stride_;
    first_ = (next_ + stride_ - 1) / stride_ % places_;
    next_ = (first_ + chunks) % places_ * stride_;
  }
  // Bytes from the start of the room. Neighbours never overlap.
  size_t at(uint32_t chunk) const { return (first_ + chunk) % places_ * stride_; }

 private:
  static constexpr size_t kAlign = 64;

  size_t stride_ = 1;
  size_t places_ = 1;
  size_t first_ = 0;
  size_t next_ = 0;  // bytes
};

}  // namespace hvd
