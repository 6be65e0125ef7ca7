// SPDX-License-Identifier: Apache-2.0
// One tensor of this rank, as a data path reads and writes it. Its submission owns it and lives until the batch it
// travels in has ended.
#pragma once

#include <cstdint>
#include <vector>

#include "control/message.h"
#include "horovod/core.h"
#include "util/status.h"

namespace hvd {

struct Tensor {
  Tensor() = default;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor();

  // What the other ranks were told.
  Description description;
  Share share;

  // This rank's own.
  std::vector<int64_t> shape;   // of the input, with its own first dimension
  size_t bytes = 0;             // of the input
  const char* input = nullptr;  // memory of `device`
  char* output = nullptr;       // null: see place_output
  int32_t device = -1;          // -1: host memory
  void* ready_event = nullptr;  // device memory: the input is there once this event has happened
  hvd_alloc_fn alloc = nullptr;
  void* alloc_context = nullptr;
  int32_t index = 0;  // its place in the submission

  // Left by the path.
  std::vector<int64_t> output_shape;
  std::vector<int64_t> received_splits;  // alltoall
  void* owned = nullptr;                 // the output, where it is the engine's memory
  Status problem;                        // this rank alone has no result, although it took part

  // Memory for an output whose shape is known only now: the request's, what its callback gives, or the engine's own.
  char* place_output(std::vector<int64_t> output_shape);
};

}  // namespace hvd
