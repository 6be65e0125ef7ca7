// SPDX-License-Identifier: Apache-2.0
// When inputs are there: a moment of the caller's stream, noted late where that loses nothing.
//
// Noting a moment is a call of the driver, which may have to wait there for other threads of this process. A caller
// who wakes nobody need not make it: its inputs share the next moment that is noted on the stream, by whoever wakes the
// engine or takes the batch up, whichever comes first. A batch that runs on the caller's own stream needs none.
#pragma once

#include <memory>
#include <mutex>

#include "paths/cuda/device.h"

namespace hvd::cuda {

// CU_STREAM_PER_THREAD means another stream on every thread: only the caller can give it something.
inline bool is_per_thread(const void* stream) { return reinterpret_cast<uintptr_t>(stream) == 2; }

class ReadyPoint : public DevicePoint {
 public:
  ReadyPoint(std::shared_ptr<Device> device, Stream stream, bool timed)
      : device(std::move(device)), stream(stream), timed(timed) {}

  const std::shared_ptr<Device> device;
  const Stream stream;
  const bool timed;  // the moment is noted with its time

  // Any thread. Notes the moment, unless that was done.
  void note() const;
  // Whether what the stream was given until now comes before this point, since it is still to be noted.
  bool open() const;
  bool reached() const override;
  void precede(void* stream) const override;
  // Null: it was not noted.
  EventPtr event() const;

 private:
  EventPtr noted() const;
  mutable std::mutex mutex_;
  mutable EventPtr event_;
};

// The last point of the stream that was used last. Any thread.
class ReadyPoints {
 public:
  // A point after everything that the stream was given. late: it may be noted later. timed: with its time. Throws
  // CudaError, and Refused with `name` for a stream that is being captured into a graph.
  std::shared_ptr<ReadyPoint> after(int device, Stream stream, bool late, bool timed, const std::string& name);

 private:
  std::mutex mutex_;
  std::shared_ptr<ReadyPoint> last_;
};

}  // namespace hvd::cuda
