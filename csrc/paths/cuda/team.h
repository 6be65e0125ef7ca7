// SPDX-License-Identifier: Apache-2.0
// The members of a process set with one GPU each: how they reach each other. Made when the first batch comes that uses
// these GPUs, by a meeting of all members over the host's data path.
//
// The meeting, two rounds in which everybody hears everybody:
//   1. what I have: GPU, MPS, NCCL, memory to show; then all choose alike (choose.h)
//   2. whether I can map and read the others' memory; the first member adds the id of the NCCL communicator
// After that, all choose again and make their groups.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "paths/cuda/choose.h"
#include "paths/cuda/direct.h"
#include "paths/cuda/nccl_group.h"
#include "paths/cuda/staged.h"
#include "paths/cuda/tools.h"
#include "paths/cuda/verbs.h"
#include "util/settings.h"

namespace hvd::cuda {

class Team {
 public:
  // tools: of the GPU that this rank uses. Waits for the other members; throws JobAborted, CudaError or NcclError.
  Team(std::shared_ptr<Tools> tools, HostPath& host, const PlannedBatch& batch, const std::vector<int>& host_of_rank,
       const Settings& settings);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // The GPU of each member, by its own count.
  const std::vector<int>& devices() const { return devices_; }
  const Choice& choice() const { return choice_; }
  bool through_host() const { return staged_ != nullptr; }
  // Puts a batch on its way. `bytes`: of what it moves, the same on all members.
  void run(PlannedBatch& batch, size_t bytes);
  // Batches of up to this many bytes go the direct way from now on, where there are two.
  void direct_up_to(size_t bytes) { choice_.direct_up_to = bytes; }
  // Its set was removed: nothing more comes. What is under way still ends.
  void leave();
  // After leave(): whether the device has done everything. Nobody waits.
  bool left();
  // Any thread.
  void abort();
  std::string report() const;

 private:
  struct Hello;
  struct Answer;
  Hello introduce(const PlannedBatch& batch, const std::vector<int>& host_of_rank, const Settings& settings);
  // Maps the others' memory and reads a word of each, which proves that it can be reached.
  std::string map_peers(const std::vector<Hello>& hellos, uint64_t seq);
  // Blocks of each rank for which there are places on this rank's GPU, if it is for this one to claim them.
  int32_t claim_room(const std::vector<Candidate>& members);
  Group& pick(const PlannedBatch& batch, size_t bytes);

  std::shared_ptr<Tools> tools_;
  HostPath& host_;
  const int me_;
  const int n_;
  const int32_t process_set_;
  const Nccl* nccl_library_ = nullptr;
  std::vector<int> devices_;
  Choice choice_;
  std::unique_ptr<ShownMemory> shown_;
  std::unique_ptr<PeerMemory> peers_;

  std::unique_ptr<Group> alone_;
  std::unique_ptr<Staged> staged_;
  std::unique_ptr<Direct> direct_;
  std::unique_ptr<NcclGroup> nccl_;
  Workspace space_;
  EventPtr last_;  // the end of what was under way at leave()
  uint64_t nccl_batches_ = 0;
  uint64_t direct_batches_ = 0;
  uint64_t staged_batches_ = 0;
};

}  // namespace hvd::cuda
