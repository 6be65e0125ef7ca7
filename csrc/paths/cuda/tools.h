// SPDX-License-Identifier: Apache-2.0
// What the engine keeps on one GPU, whatever the process set.
#pragma once

#include <memory>
#include <utility>

#include "paths/cuda/convert.h"
#include "paths/cuda/device.h"
#include "paths/cuda/modules.h"
#include "paths/cuda/outputs.h"
#include "paths/cuda/room.h"
#include "paths/cuda/stop_word.h"
#include "paths/cuda/trace.h"

namespace hvd::cuda {

// Collectives come one after the other, whatever streams they are put on. Driving thread.
class Order {
 public:
  explicit Order(Stream own) : own(own) {}
  const Stream own;

  // What the stream is given next comes after everything before it.
  void follow(Stream stream) const {
    // A handle that a user made may be that of another stream by now.
    bool lasting = stream == nullptr || stream == own;
    if (last_ && !(stream == last_stream_ && lasting)) last_->precede(stream);
  }
  void done(Stream stream, std::shared_ptr<DevicePoint> point) {
    last_stream_ = stream;
    last_ = std::move(point);
  }

 private:
  Stream last_stream_ = nullptr;
  std::shared_ptr<DevicePoint> last_;
};

struct Tools {
  explicit Tools(const std::shared_ptr<Device>& d)
      : device(d),
        modules(d),
        stop(d),
        converter(modules, stop),
        outputs(std::make_shared<Outputs>(d)),
        room(d->uuid()),
        trace(d),
        order(d->stream(0)) {}
  std::shared_ptr<Device> device;
  Modules modules;
  StopWord stop;
  Converter converter;
  std::shared_ptr<Outputs> outputs;
  Room room;
  Trace trace;
  Order order;
};

}  // namespace hvd::cuda
