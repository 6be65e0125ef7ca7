// SPDX-License-Identifier: Apache-2.0
// What the engine keeps on one GPU, whatever the process set.
#pragma once

#include <memory>

#include "paths/cuda/convert.h"
#include "paths/cuda/device.h"
#include "paths/cuda/modules.h"
#include "paths/cuda/outputs.h"
#include "paths/cuda/stop_word.h"

namespace hvd::cuda {

struct Tools {
  explicit Tools(const std::shared_ptr<Device>& d)
      : device(d), modules(d), stop(d), converter(modules, stop), outputs(std::make_shared<Outputs>(d)) {}
  std::shared_ptr<Device> device;
  Modules modules;
  StopWord stop;
  Converter converter;
  std::shared_ptr<Outputs> outputs;
};

}  // namespace hvd::cuda
