// SPDX-License-Identifier: Apache-2.0
// Which way GPU tensors of a process set go. Pure: every member decides by what all members said, so all agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "paths/cuda/arguments.h"
#include "paths/cuda/driver_abi.h"

namespace hvd::cuda {

enum class Wanted : int32_t { kAuto, kNccl, kDirect, kHost };

// "auto", "NCCL", "direct", "host" in any case; false for anything else.
bool parse_wanted(const std::string& text, Wanted* out);
const char* wanted_name(Wanted wanted);

// What one member of the set said of itself.
struct Candidate {
  int32_t rank = 0;  // global
  int32_t host = 0;
  Wanted wanted = Wanted::kAuto;
  Uuid gpu{};
  bool mps = false;            // its GPU runs several processes at a time
  int32_t outsiders = 0;       // ranks of its host that are no members, and may have the same GPU
  int32_t capacity = 0;        // blocks of the direct kernels its GPU can run at a time, two a multiprocessor
  int32_t room = kMostBlocks;  // those of a rank for which its GPU has places, other jobs considered
  int32_t nccl = 0;            // version, e.g. 22809; 0: none
  std::string no_nccl;         // why not
  int32_t nccl_streams = 0;    // communicators that it was told to use; 0: as many as pay
  std::string nccl_host;       // ranks with the same one reach each other without a network, to NCCL's mind
  bool sockets = false;        // NCCL has nothing but TCP between hosts
  int32_t cores = 1;           // of its host, for each of the job's ranks there
  std::string no_direct;       // empty: it can show memory and map that of the others
};

struct Choice {
  bool direct = false;
  bool spins = false;  // how they meet, see direct.h
  int blocks = 0;      // of a launch that spins
  bool nccl = false;
  int nccl_streams = 1;     // communicators that large tensors are spread over
  size_t direct_up_to = 0;  // where both are there: bytes of a batch that go the direct way
  std::string error;        // what was asked for cannot be had
  std::string reason;       // for the log

  bool through_host() const { return !direct && !nccl; }
  // Whether a batch of so many bytes goes the direct way; where not, over NCCL or the host.
  bool goes_direct(size_t bytes) const { return direct && (!nccl || bytes <= direct_up_to); }
};

bool same_gpu(const Candidate& a, const Candidate& b);
// How many members of the same host have the GPU of this one, itself included.
int sharing(const std::vector<Candidate>& members, const Candidate& one);

// Blocks of a GPU that may wait at a time, of all jobs together: one on each of three quarters of its multiprocessors.
// The rest is for the kernels that they wait for: what comes before them in the streams of other ranks must find a
// place too, and a kernel may need a whole multiprocessor (a matrix product of 384 threads with 168 registers each
// does), which one block that waits takes from it.
inline int most_waiting(int capacity) { return capacity * 3 / 8; }
// How many ranks of the job may wait on the GPU of this member at a time. Where all members have it, one of them has
// not come yet while the others wait.
int waiting(const std::vector<Candidate>& members, const Candidate& one);

Choice choose(const std::vector<Candidate>& members, size_t direct_up_to);

}  // namespace hvd::cuda
