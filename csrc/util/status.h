// SPDX-License-Identifier: Apache-2.0
// Outcome of an operation, and the one exception that ends them all.
#pragma once

#include <stdexcept>
#include <string>

#include "horovod/core.h"

namespace hvd {

struct Status {
  int code = HVD_OK;
  std::string text;
  bool ok() const { return code == HVD_OK; }
};

// Thrown out of any wait when the job can no longer go on (a rank died, a link broke, hvd_abort).
struct JobAborted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Refusal of one call; the engine stays as it was.
struct Refused : std::runtime_error {
  Refused(int status, const std::string& text) : std::runtime_error(text), code(status) {}
  int code;
};

}  // namespace hvd
