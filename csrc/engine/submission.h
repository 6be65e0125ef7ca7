// SPDX-License-Identifier: Apache-2.0
// What a caller handed in, from hvd_submit to hvd_release.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/entry_buffers.h"
#include "engine/tensor_key.h"
#include "horovod/core.h"
#include "paths/tensor.h"
#include "util/reused.h"
#include "util/status.h"
#include "world/set_layout.h"

namespace hvd {

struct Submission;

// One tensor of a submission. What its Tensor part and `value` hold belongs to whoever has the entry: the caller until
// it is added to the table, the driving thread from then on, its data path while it is in flight, the caller again once
// it is done.
struct Entry : Tensor {
  Entry() { EntryBuffers::borrow(*this); }
  ~Entry() { EntryBuffers::give_back(*this); }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  // Valid as long as the entry, once it is in the table.
  TensorKey key() const { return {description.process_set, description.name, name_hash}; }

  Submission* owner = nullptr;
  size_t name_hash = 0;    // for key(); made by the table
  int64_t value = 0;       // join: who joined last; a new process set's id
  uint32_t sent_id = 0;    // cached id it was announced by; driving thread
  double since = 0;        // when it was submitted
  double announced = 0;    // when the tree was told; driving thread
  uint64_t record = 0;     // its number in the flight recorder
  bool in_flight = false;  // a data path has it; guarded by the table
};

struct Submission {
  using Entries = std::vector<Entry, Reused<Entry>>;

  explicit Submission(size_t n) : entries(n) {}
  static std::shared_ptr<Submission> make(size_t n) {
    return std::allocate_shared<Submission>(Reused<Submission>(), n);
  }

  int64_t handle = 0;
  Entries entries;
  uint32_t flags = 0;
  hvd_done_fn done_callback = nullptr;
  void* context = nullptr;
  std::shared_ptr<const SetLayout> layout;  // the process set it was checked against; null: needs none

  int32_t remaining = 0;  // entries that are not done; guarded by the table
  Status status;          // guarded by the table, the caller's once done
  std::atomic<bool> done{false};
};

}  // namespace hvd
