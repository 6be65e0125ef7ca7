// SPDX-License-Identifier: Apache-2.0
// What the host hands to the kernels: plain structs, passed by value, the same for nvcc and the C++ compiler.
#pragma once

#include "paths/cuda/element.h"

namespace hvd::cuda {

constexpr int kMostPeers = 16;       // ranks of one host in a direct group; a DGX-2 has 16 GPUs
constexpr int kMostBlocks = 160;     // that have memory to show
constexpr int kMostSegments = 120;   // of one launch of `convert`: the arguments must stay below 4 KiB
constexpr int kConvertItems = 8192;  // elements a block of `convert` does
constexpr int kThreads = 512;
constexpr int kUnroll = 4;  // vectors a thread keeps in flight

// The memory each rank of a direct group shows the others:
//
//   flags [kMostPeers][kMostBlocks] | signals [kMostPeers] | small [2][kSmallBytes] | regions [kMostBlocks]
//   a region: tile [kTileBytes] | result [kTileBytes / 2]
//
// A flag is written by one peer for one block, a signal by one peer's stream, and read here: a rank only ever polls its
// own memory.
constexpr size_t kFlagStride = 32;  // a memory sector each
constexpr size_t kSignalsOffset = kMostPeers * kMostBlocks * kFlagStride;
constexpr size_t kSmallOffset = kSignalsOffset + 4096;
constexpr size_t kSmallBytes = 1 << 20;
constexpr size_t kRegionsOffset = kSmallOffset + 2 * kSmallBytes;
constexpr size_t kTileBytes = 128 << 10;
constexpr size_t kRegionBytes = kTileBytes + kTileBytes / 2;  // a share is at most half of a tile
constexpr size_t kPeerBytes = kRegionsOffset + kMostBlocks * kRegionBytes;

// Not zero: the job has ended, and what was promised the memory of a tensor must not be touched any more. Two words,
// one in the GPU's memory, which is cheap to look at, and one in the host's, which can always be written.
struct Aborted {
  const uint32_t* here;
  const uint32_t* on_host;
};

struct Peers {
  int32_t me;
  int32_t n;
  uint32_t step;  // flags of this launch grow from here
  int32_t spins;  // 1: blocks wait for their like inside of the kernel; 0: streams wait between the phases
  char* memory[kMostPeers];
  Aborted aborted;
};

// A collective in three steps with a meeting between two of them. With `spins` a launch does all, else one each.
enum Phase : int32_t { kPack = 1, kCombine = 2, kUnpack = 4 };

// Every member reduces its share and, in an allreduce, takes the others' shares from them. Tensors and shares begin at
// multiples of 16 bytes; the host brings what does not lie so into that form first.
struct ReduceShares {
  Peers peers;
  const void* in;
  void* out;                 // all elements, or only the own share where it is not `shared`
  size_t begin[kMostPeers];  // where member i's share begins in `in`
  size_t count[kMostPeers];  // its elements
  size_t slot;               // elements of a share in one tile
  size_t first_tile, last_tile;
  int32_t op;
  int32_t phases;
  int32_t shared;  // 1: an allreduce, the own share is shown to the others
  Scaling after;   // floating point only
};

// Everybody shows all and reduces all for itself.
struct ReduceSmall {
  Peers peers;
  const void* in;
  void* out;
  size_t count;
  int32_t op;
  int32_t phases;
  int32_t which;  // of the two small areas
  Scaling after;
};

// Every member shows its bytes; each takes what it wants of them.
struct Spread {
  Peers peers;
  const char* in;
  size_t total[kMostPeers];  // bytes that member i shows
  size_t from[kMostPeers];   // this rank wants [from, to) of member i's
  size_t to[kMostPeers];
  char* out[kMostPeers];
  size_t first_tile, last_tile;
  int32_t phases;
};

struct Segment {
  const void* in;  // nullptr: zeros
  void* out;
  size_t count;
};

// Element by element from one type to another, of many tensors at once.
struct Convert {
  Aborted aborted;
  Scaling scaling;
  int32_t n;
  uint32_t first_block[kMostSegments + 1];
  Segment segments[kMostSegments];
};

// Adasum: a and b side by side, cut into the same segments; sums[3 * i] are a.a, a.b and b.b of segment i.
struct Pairwise {
  Aborted aborted;
  double* sums;
  int32_t n;
  uint32_t first_block[kMostSegments + 1];
  Segment segments[kMostSegments];  // in: b, out: a
};

}  // namespace hvd::cuda
