// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/ready.h"

#include "horovod/core.h"
#include "util/status.h"

namespace hvd::cuda {

EventPtr ReadyPoint::noted() const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!event_) event_ = device->record(stream, timed);
  return event_;
}

EventPtr ReadyPoint::event() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return event_;
}

void ReadyPoint::note() const { noted(); }

bool ReadyPoint::open() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return !event_;
}

bool ReadyPoint::reached() const { return noted()->reached(); }

void ReadyPoint::precede(void* other) const {
  if (other == stream && !is_per_thread(stream)) return;
  noted()->precede(other);
}

std::shared_ptr<ReadyPoint> ReadyPoints::after(int device, Stream stream, bool late, bool timed,
                                               const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  // One that is open stays so for what is given to the stream before this returns: it is noted after that.
  bool fits = last_ && last_->device->number == device && last_->stream == stream && !is_per_thread(stream);
  if (!fits || !last_->open())
    last_ = std::make_shared<ReadyPoint>(fits ? last_->device : Device::get(device), stream, timed);
  std::shared_ptr<ReadyPoint> point = last_;
  if (point->device->capturing(stream)) {
    last_.reset();
    throw Refused(HVD_INVALID, name +
                                   " was submitted while its stream is captured into a CUDA graph; collectives cannot "
                                   "be part of a graph. Capture what lies between them.");
  }
  if (!late || is_per_thread(stream)) point->note();
  return point;
}

}  // namespace hvd::cuda
