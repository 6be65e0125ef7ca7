// SPDX-License-Identifier: Apache-2.0
// Collectives over NCCL. What is large is spread over several communicators, if the set has them: each has a thread
// that serves its sockets.
//
//   stream of the caller   ─●─ part 0 ──────●─►
//   lane 1                  └─ part 1 ───┘
//
// Driving thread only, but for abort().
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "paths/cuda/communicators.h"
#include "paths/cuda/convert.h"
#include "paths/cuda/device.h"
#include "paths/cuda/group.h"
#include "paths/cuda/nccl.h"

namespace hvd::cuda {

class NcclGroup : public Group {
 public:
  // Waits until all members have come. `check_job` throws when the job was aborted.
  NcclGroup(const Nccl& nccl, std::shared_ptr<Device> device, Converter& converter, const NcclId& id, int me, int n,
            int communicators, std::function<void()> check_job);

  const char* name() const override { return "NCCL"; }
  bool any_stream() const override { return true; }
  int travels_as(int dtype) const override;
  void begin() override { ++depth_; }
  void end() override;
  void all_reduce(const Reduce& how, const void* in, void* out, size_t count, Stream stream) override;
  void reduce_scatter(const Reduce& how, const void* in, void* out, const std::vector<size_t>& begins,
                      const std::vector<size_t>& counts, Stream stream) override;
  void all_gather(const void* in, char* out, const std::vector<size_t>& begins, const std::vector<size_t>& bytes,
                  Stream stream) override;
  void broadcast(const void* in, void* out, size_t bytes, int root, Stream stream) override;
  void all_to_all(const char* in, char* out, const std::vector<size_t>& bytes, Stream stream) override;
  void abort() override { communicators_.abort(); }
  void rest() override { communicators_.rest(); }

 private:
  struct Range {
    size_t begin;
    size_t count;
  };
  // One communicator's turn with a call.
  struct Turn {
    Communicator& on;
    int part;
    int parts;
    Stream stream;
    // Of so many elements of so many bytes.
    Range part_of(size_t count, size_t item) const;
  };
  // Bytes of a call that is not cut: the first communicator has all of it.
  static constexpr size_t kWhole = 0;
  struct Call {
    const char* name;
    size_t bytes;
    std::function<NcclResult(const Turn&)> put;
    std::function<void()> after;  // when all parts are enqueued; may be empty
  };
  void add(Call call, Stream stream);
  void carry_out();
  // Whether the reduction applies the factor that comes after it.
  static bool scales(const Reduce& how);
  int operator_for(const Reduce& how, Communicator& on);
  // What scales sums otherwise; empty if nothing has to.
  std::function<void()> scaling(const Reduce& how, void* sums, size_t count, Stream stream);

  const Nccl& nccl_;
  const std::shared_ptr<Device> device_;
  Converter& converter_;
  Communicators communicators_;
  int depth_ = 0;
  std::vector<Call> calls_;  // of the group that has begun
  Stream stream_ = nullptr;  // of the last
};

}  // namespace hvd::cuda
