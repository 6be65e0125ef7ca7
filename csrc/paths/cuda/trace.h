// SPDX-License-Identifier: Apache-2.0
// When a GPU did what, for the timeline. Between the parts of a batch go events with times; whoever writes the timeline
// asks later which have been reached. Nobody waits for the device, and without a timeline nothing is recorded.
//
// A time of the device is told as so much before or after an anchor: an event whose time is known on the host's clock
// as well. A difference has 24 bits, so anchors are renewed.
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

// The moments of one batch. Driving thread.
class Marks {
 public:
  Marks(std::shared_ptr<Device> device, DeviceWork work) : device_(std::move(device)), work_(std::move(work)) {}
  // An input is there from this event on; one without a time is left out.
  void input(EventPtr ready);
  // The stream has what it needs, and begins.
  void begin(Stream stream);
  // What was given to the stream since the last mark was this; `part` is static memory.
  void passed(const char* part, Stream stream);

 private:
  friend class Trace;
  std::shared_ptr<Device> device_;
  DeviceWork work_;
  std::vector<EventPtr> inputs_;
  std::vector<EventPtr> moments_;  // the beginning, and the end of each part
};

class Trace {
 public:
  explicit Trace(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  // Driving thread.
  Marks of(const PlannedBatch& batch, size_t bytes, const char* way) const;
  void add(Marks marks);
  // Any thread: what has been done since, in order. last: nobody asks for the rest.
  void take(std::vector<DeviceWork>* out, bool last);

 private:
  // A moment on both clocks.
  struct Anchor {
    EventPtr event;
    double at = 0;  // now_s()
  };
  void renew_anchor(double patience);
  // now_s() of an event that was reached; false: the device failed.
  bool time_of(const Event& event, double* seconds) const;
  bool told(Marks& marks, std::vector<DeviceWork>* out) const;

  std::shared_ptr<Device> device_;
  std::mutex mutex_;
  Anchor anchor_;
  std::deque<Marks> pending_;
};

}  // namespace hvd::cuda
