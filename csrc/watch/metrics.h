// SPDX-License-Identifier: Apache-2.0
// Counters of one engine, readable at any time.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace hvd {

struct Metrics {
  std::atomic<int64_t> submitted{0};      // tensors handed in
  std::atomic<int64_t> batches{0};        // batches executed
  std::atomic<int64_t> tensors{0};        // tensors executed
  std::atomic<int64_t> fused_tensors{0};  // of these, in batches of two or more
  std::atomic<int64_t> bytes{0};          // payload of this rank
  std::atomic<int64_t> execute_us{0};     // time inside batches
  std::atomic<int64_t> cached_announcements{0};
  std::atomic<int64_t> full_announcements{0};
  std::atomic<int64_t> plans{0};
  std::atomic<int64_t> errors{0};

  std::string json() const {
    std::string out = "{";
    auto add = [&](const char* name, const std::atomic<int64_t>& value) {
      if (out.size() > 1) out += ", ";
      out += std::string("\"") + name + "\": " + std::to_string(value.load());
    };
    add("submitted", submitted);
    add("batches", batches);
    add("tensors", tensors);
    add("fused_tensors", fused_tensors);
    add("bytes", bytes);
    add("execute_us", execute_us);
    add("cached_announcements", cached_announcements);
    add("full_announcements", full_announcements);
    add("plans", plans);
    add("errors", errors);
    return out + "}";
  }
};

}  // namespace hvd
