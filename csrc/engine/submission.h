// SPDX-License-Identifier: Apache-2.0
// What a caller handed in, from hvd_submit to hvd_release.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "control/message.h"
#include "horovod/core.h"
#include "util/status.h"

namespace hvd {

struct Submission;

// One tensor of a submission.
struct Entry {
  Submission* owner = nullptr;
  int32_t index = 0;
  Description description;
  Share share;
  std::vector<int64_t> shape;  // of the input, with its own first dimension
  const char* input = nullptr;
  char* output = nullptr;
  void* owned = nullptr;  // engine-owned output
  std::vector<int64_t> output_shape;
  std::vector<int64_t> received_splits;
  int64_t value = 0;
  uint32_t sent_id = 0;  // cached id announced for it
  double since = 0;      // when it was submitted
};

struct Submission {
  int64_t handle = 0;
  std::vector<Entry> entries;
  int32_t remaining = 0;
  uint32_t flags = 0;
  hvd_alloc_fn alloc = nullptr;
  hvd_done_fn done_callback = nullptr;
  void* context = nullptr;
  Status status;
  std::atomic<bool> done{false};

  ~Submission() {
    for (Entry& e : entries) std::free(e.owned);
  }
};

}  // namespace hvd
