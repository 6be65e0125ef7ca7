// SPDX-License-Identifier: Apache-2.0
// One tensor of this rank, as a data path reads and writes it. Its submission owns it and lives until the batch it
// travels in has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "control/message.h"
#include "horovod/core.h"
#include "util/status.h"

namespace hvd {

// A moment of a device's work: what comes after it sees what was done before it.
class DevicePoint {
 public:
  virtual ~DevicePoint() = default;
  virtual bool reached() const = 0;
  // Puts it before everything that is given to the stream from now on.
  virtual void precede(void* stream) const = 0;
};

struct Tensor {
  Tensor() = default;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor();

  // What the other ranks were told.
  Description description;
  Share share;

  // This rank's own.
  std::vector<int64_t> shape;          // of the input, with its own first dimension
  size_t bytes = 0;                    // of the input
  const char* input = nullptr;         // memory of `device`
  char* output = nullptr;              // null: see place_output
  int32_t device = -1;                 // -1: host memory
  void* ready_event = nullptr;         // device memory: the input is there once this event has happened,
  std::shared_ptr<DevicePoint> ready;  // or this, where the path recorded it
  void* stream = nullptr;              // the caller's
  bool late = false;                   // nobody is woken for it: `ready` may be noted later
  bool in_stream = false;              // it may be done on that stream; afterwards: it was
  hvd_alloc_fn alloc = nullptr;
  void* alloc_context = nullptr;
  int32_t index = 0;  // its place in the submission

  // Left by the path.
  std::vector<int64_t> output_shape;
  std::vector<int64_t> received_splits;  // alltoall
  void* owned = nullptr;                 // the output, where it is the engine's memory
  std::shared_ptr<void> on_device;       // likewise, a device's memory
  std::shared_ptr<DevicePoint> result;   // device memory: the output is there once it is reached
  Status problem;                        // this rank alone has no result, although it took part

  // Host memory for an output whose shape is known only now: the request's, what its callback gives, or our own.
  char* place_output(std::vector<int64_t> output_shape);
};

}  // namespace hvd
