// SPDX-License-Identifier: Apache-2.0
// When a GPU did what, for the timeline. Between the parts of a batch go events with times; whoever writes the timeline
// asks later which have been reached. Nobody waits for the device, and without a timeline nothing is recorded.
//
// A time of the device is told as so much after an anchor: an event whose time is known on the host's clock as well. A
// difference has 24 bits, so anchors are renewed.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "paths/cuda/device.h"
#include "paths/data_path.h"
#include "util/device_work.h"

namespace hvd::cuda {

// A moment on both clocks.
struct Anchor {
  EventPtr event;
  double at;  // now_s()
};

// The moments of one batch. Driving thread.
class Marks {
 public:
  Marks(std::shared_ptr<const Anchor> anchor, DeviceWork work) : anchor_(std::move(anchor)), work_(std::move(work)) {}
  // An input is there from this event on; one without a time is left out.
  void input(EventPtr ready);
  // The stream has what it needs, and begins.
  void begin(Stream stream);
  // What was given to the stream since the last mark was this; `part` is static memory.
  void passed(const char* part, Stream stream);

 private:
  friend class Trace;
  std::shared_ptr<const Anchor> anchor_;
  DeviceWork work_;
  std::vector<EventPtr> inputs_;
  std::vector<EventPtr> moments_;  // the beginning, and the end of each part
};

class Trace {
 public:
  explicit Trace(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  // Driving thread.
  Marks of(const PlannedBatch& batch, size_t bytes, int lane, const char* way);
  void add(Marks marks);
  // Any thread: what has been done since, in order.
  void take(std::vector<DeviceWork>* out);

 private:
  void renew_anchor(double older_than);
  bool told(Marks& marks, std::vector<DeviceWork>* out) const;

  std::shared_ptr<Device> device_;
  std::mutex mutex_;
  std::shared_ptr<const Anchor> anchor_;
  std::deque<Marks> pending_;
};

}  // namespace hvd::cuda
