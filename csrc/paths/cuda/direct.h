// SPDX-License-Identifier: Apache-2.0
// Collectives of ranks of one host that map each other's memory: our own kernels, no library.
//
//   small allreduce   everybody shows its tensor, all meet, everybody reduces all for itself
//   allreduce         everybody shows what the others own, all meet, everybody reduces its own share and shows it, all
//                     meet, everybody takes the other shares; tile by tile
//   reducescatter     the first half of that
//   allgather, broadcast, alltoall   everybody shows its bytes, all meet, everybody takes what it wants, all meet
//
// How they meet:
//   spinning   blocks wait for flags inside of one kernel. Every block of every rank must be able to run at a time, so
//              their number is limited, and ranks that share a GPU need MPS: without it only one of them runs at a
//              time.
//   by stream  a kernel for each step; in between the streams write and await words in each other's memory, which
//              takes no multiprocessor. Any ranks can do that.
// Either way a rank awaits only its own memory, where abort() can let it go.
#pragma once

#include <atomic>
#include <initializer_list>
#include <memory>
#include <thread>
#include <vector>

#include "paths/cuda/group.h"
#include "paths/cuda/peer_memory.h"
#include "paths/cuda/tools.h"

namespace hvd::cuda {

class Direct : public Group {
 public:
  // spins, blocks: agreed by all members (choose.h).
  Direct(Tools& tools, std::unique_ptr<PeerMemory> memory, int me, int n, bool spins, int blocks);
  ~Direct() override;

  const char* name() const override { return "direct"; }
  // Streams that wait for each other must be ones that abort() knows.
  bool any_stream() const override { return spins_; }
  void all_reduce(const Reduce& how, const void* in, void* out, size_t count, Stream stream) override;
  void reduce_scatter(const Reduce& how, const void* in, void* out, const std::vector<size_t>& begins,
                      const std::vector<size_t>& counts, Stream stream) override;
  void all_gather(const void* in, char* out, const std::vector<size_t>& begins, const std::vector<size_t>& bytes,
                  Stream stream) override;
  void broadcast(const void* in, void* out, size_t bytes, int root, Stream stream) override;
  void all_to_all(const char* in, char* out, const std::vector<size_t>& bytes, Stream stream) override;
  void abort() override;
  void rest() override { at_rest_ = true; }

  // Blocks of the kernels that spin which the GPU can run at a time.
  static int capacity(Tools& tools);

 private:
  Peers peers() const;
  void reduce_by_shares(ReduceShares work, const Reduce& how, const std::vector<size_t>& begins,
                        const std::vector<size_t>& counts, Stream stream);
  void spread(Spread work, const std::vector<size_t>& totals, Stream stream);
  // One launch, or one a phase with a meeting of the streams after each.
  template <class Work>
  void run(Function kernel, size_t blocks, Work work, std::initializer_list<int> phases, uint32_t steps, Stream stream);
  void meet(Stream stream);
  void let_go();

  Tools& tools_;
  std::unique_ptr<PeerMemory> memory_;
  const bool spins_;
  const size_t blocks_;
  const Stream stream_;  // all collectives run on this one, or before what is put on it next
  uint32_t step_ = 0;
  std::atomic<uint32_t> signal_{0};
  int which_ = 0;  // small area
  std::atomic<bool> ended_{false};
  std::atomic<bool> submitting_{false};  // the driving thread is between two calls of one collective
  std::thread rescuer_;
  bool at_rest_ = false;
};

}  // namespace hvd::cuda
