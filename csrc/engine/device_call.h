// SPDX-License-Identifier: Apache-2.0
// A blocking call of one tensor in a device's memory that needs no plan: a batch that nobody else knows of.
#pragma once

#include "engine/submission.h"
#include "paths/data_path.h"

namespace hvd {

struct DeviceCall final : BatchEnd {
  Entry tensor;
  PlannedBatch batch;
  DataPath* path = nullptr;
  Status status;
  std::string broken_by;

  void ended(PlannedBatch& /*batch*/, const Status& how) override { status = how; }
  void broken(const std::string& why) override { broken_by = why; }
};

}  // namespace hvd
