// SPDX-License-Identifier: Apache-2.0
// How a direct collective is cut into tiles and blocks. Pure: every member computes the same from the same sizes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "paths/cuda/arguments.h"
#include "util/round.h"

namespace hvd::cuda {

// A reduction by shares: member i owns counts[i] elements; a block does one slot of everybody's share at a time.
struct ShareTiles {
  size_t slot = 0;    // elements
  size_t tiles = 0;   // of the largest share
  size_t blocks = 0;  // that work side by side
  size_t rounds() const { return blocks ? divide_up(tiles, blocks) : 0; }
};

constexpr size_t kLeastSlotBytes = 4 << 10;  // less is not worth a meeting

// How often the threads of a block wait for memory while they copy so many bytes: they have kUnroll vectors under way
// at a time where that many are left for each, and else one.
constexpr size_t kPassBytes = static_cast<size_t>(kThreads) * 16;
inline size_t passes(size_t bytes) {
  return bytes / (kUnroll * kPassBytes) + divide_up(bytes % (kUnroll * kPassBytes), kPassBytes);
}

inline ShareTiles cut_shares(const std::vector<size_t>& counts, size_t item, size_t most_blocks) {
  size_t largest = *std::max_element(counts.begin(), counts.end());
  if (!largest) return {};
  size_t n = counts.size();
  size_t vector = 16 / item;  // slots begin at multiples of 16 bytes
  size_t most = kTileBytes / n / 16 * vector;
  size_t least = std::min(most, kLeastSlotBytes / item);
  auto cut_by = [&](size_t slot) {
    size_t tiles = divide_up(largest, slot);
    return ShareTiles{slot, tiles, std::min(tiles, most_blocks)};
  };
  // Each tile is copied for all others, combined, and copied from all others. Its two meetings take as long as two
  // passes.
  auto cost = [&](const ShareTiles& cut) { return cut.rounds() * (2 + (2 * n - 1) * passes(cut.slot * item)); };
  // Equal work for all blocks, in as few rounds as the memory that is shown allows; unless slots of whole passes take
  // less. Of 128 MiB with 4 ranks, 33 blocks with slots of 31.8 KiB took as long as 16 with 32 KiB.
  size_t rounds = divide_up(largest, most * most_blocks);
  ShareTiles best = cut_by(std::clamp(round_up(divide_up(largest, rounds * most_blocks), vector), least, most));
  for (size_t slot = kPassBytes / item; slot <= most; slot += kPassBytes / item)
    if (ShareTiles cut = cut_by(slot); cost(cut) < cost(best)) best = cut;
  return best;
}

// Equal shares of `count` elements that begin at multiples of 16 bytes; the last ones may be smaller or empty.
inline void equal_shares(size_t count, size_t item, size_t n, std::vector<size_t>* begins,
                         std::vector<size_t>* counts) {
  size_t share = round_up(divide_up(count, n), 16 / item);
  begins->clear();
  counts->clear();
  for (size_t i = 0; i < n; ++i) {
    size_t begin = std::min(i * share, count);
    begins->push_back(begin);
    counts->push_back(std::min(share, count - begin));
  }
}

// A reduction that everybody does for itself: worth it while reading everybody's is quicker than a second meeting.
inline bool is_small(size_t bytes, size_t n) { return bytes <= kSmallBytes && bytes * n <= (size_t{1} << 20); }

inline size_t small_blocks(size_t bytes, size_t most_blocks) {
  constexpr size_t each = 8 << 10;  // one vector of 16 bytes a thread
  return std::clamp<size_t>(divide_up(bytes, each), 1, std::min<size_t>(most_blocks, 64));
}

// Bytes that are shown and taken: tiles of a whole region.
inline size_t spread_tiles(const std::vector<size_t>& totals) {
  return divide_up(*std::max_element(totals.begin(), totals.end()), kRegionBytes);
}

}  // namespace hvd::cuda
