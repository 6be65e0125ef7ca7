// SPDX-License-Identifier: Apache-2.0
// How a rank writes what the others of its host read next: into its cache, from where they fetch it, or around it.
//
// Through the cache is faster where the cores share one. Where they do not, as those of two sockets, every line has to
// be called back from whoever read it last: 2.4 GB/s, where memory takes 8. Nothing says so beforehand, and a virtual
// machine may be moved from the one to the other at any time. So one chunk in a while goes the other way, and both are
// timed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace hvd {

class SlotWriting {
 public:
  // Whether the next chunk, of so many bytes, goes around the cache.
  bool around(size_t bytes) const {
    if (bytes < kLeast) return false;
    return around_ != is_trial();
  }
  // Whether the next chunk is to be written by itself, so that its time says something. Any other goes through the
  // cache and may be written along with other work; passed() counts it.
  bool by_itself(size_t bytes) const { return bytes >= kLeast && (around_ || chunks_ % kTrial >= kTrial - 2); }
  void passed() {
    ++chunks_;
    seldom_ = true;
  }
  // A chunk that went as around() said took so long.
  void took(size_t bytes, double seconds) {
    if (bytes < kLeast) return;
    const bool trial = is_trial();
    double& cost = cost_[around_ != trial];
    const double now = seconds / static_cast<double>(bytes);
    // What is tried once in a while is as it was just now; what goes on may have been disturbed just now.
    cost = trial || cost == 0 ? now : cost + (std::min(now, 2 * cost) - cost) / (seldom_ ? 2 : 8);
    seldom_ = false;
    ++chunks_;
    if (!fixed_ && cost_[0] > 0 && cost_[1] > 0) around_ = cost_[0] > kGain * cost_[1];
  }
  // What goes on; for what is not timed.
  bool around() const { return around_; }

  // For tests: always so, but for the trials.
  void fix(bool around) {
    around_ = around;
    fixed_ = true;
  }

 private:
  static constexpr size_t kLeast = 32 << 10;
  static constexpr uint32_t kTrial = 64;
  // Whoever reads it from memory pays, too.
  static constexpr double kGain = 2;

  bool is_trial() const { return chunks_ % kTrial == kTrial - 1; }

  bool around_ = false;
  bool fixed_ = false;
  bool seldom_ = false;  // the last chunk was not timed
  uint32_t chunks_ = 0;
  double cost_[2] = {0, 0};  // seconds a byte: through the cache, around it
};

}  // namespace hvd
