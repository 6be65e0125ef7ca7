// SPDX-License-Identifier: Apache-2.0
// A planned batch of GPU tensors becomes calls of a Group: fusion, casts, scaling, joined ranks, outputs.
#pragma once

#include <vector>

#include "paths/cuda/group.h"
#include "paths/cuda/tools.h"
#include "paths/data_path.h"

namespace hvd::cuda {

// The buffers of a set.
struct Workspace {
  explicit Workspace(const std::shared_ptr<Device>& device);
  Buffer fused;    // what is packed
  Buffer vectors;  // Adasum: everybody's share of mine
};

class Verbs {
 public:
  // marks: where it is noted when the device does what; null: nobody asks.
  Verbs(Tools& tools, Group& group, Workspace& space, Stream stream, Marks* marks)
      : tools_(tools), group_(group), space_(space), stream_(stream), marks_(marks) {}

  // Puts the batch on the stream; each tensor is left its output and the point when that is there.
  void run(PlannedBatch& batch);

 private:
  // A tensor of a reduction that travels by itself.
  struct Item {
    const void* in;
    void* out;
    size_t count;
  };

  void await_inputs(const PlannedBatch& batch);
  // Into the form in which they travel, and back.
  void pack(int from, int to, const Scaling& scaling, const std::vector<Segment>& segments);
  void unpack(int from, int to, const Scaling& scaling, const std::vector<Segment>& segments);
  void passed(const char* part);
  char* place_output(Tensor& tensor, std::vector<int64_t> shape);
  void allreduce(const PlannedBatch& batch);
  void adasum(const PlannedBatch& batch);
  void reducescatter(const PlannedBatch& batch);
  void allgather(const PlannedBatch& batch);
  void broadcast(const PlannedBatch& batch);
  void alltoall(const PlannedBatch& batch);

  Tools& tools_;
  Group& group_;
  Workspace& space_;
  const Stream stream_;
  Marks* const marks_;
};

}  // namespace hvd::cuda
