// SPDX-License-Identifier: Apache-2.0
// How a rank writes what the others of its host read next: into its cache, from where they fetch it, or around it.
//
// Through the cache is faster where the cores share one. Where they do not, as those of two sockets, every line has to
// be called back from whoever read it last, and fetched from the cache of whoever wrote it: 64 MiB of two ranks take 11
// ms that way, and 5 through memory. Nothing says so beforehand, a virtual machine may be moved from the one to the
// other at any time, and small collectives may differ from large ones. So for each size both ways are timed now and
// then:
//
//   chunk of collectives of about one size   0 ..        16 ..     22 ..    28 ..
//   its way                                  through     through   around   what was faster
//
// and again from chunks 32, 64, 128, ..., 1024, 2048, 3072, ... on.
// All ranks of a host count the same chunks, so a chunk in question is read as it was written: times are of both. One
// rank decides for all: what it finds out is in the memory they share, where the others look.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "host/segment.h"

namespace hvd {

class SlotWriting {
 public:
  // Where the ranks of a set find what its first one decides.
  void follow(SlotWays& decided, bool decides) {
    decided_ = &decided;
    decides_ = decides;
  }
  // A collective of so many bytes, in so many chunks.
  void begin(size_t bytes, uint32_t chunks) {
    may_ = decided_ && bytes >= kLeast;
    if (!may_) return;
    size_ = std::min<size_t>(std::bit_width(bytes / kLeast), kSlotSizes) - 1;
    first_ = counts_[size_];
    counts_[size_] += chunks;
  }
  // Whether a chunk of it goes around the cache.
  bool around(uint32_t chunk) const {
    if (!may_) return false;
    if (fixed_) return *fixed_;
    std::optional<bool> trial = tried(chunk);
    return trial ? *trial : (*decided_)[size_].load(std::memory_order_relaxed);
  }
  // To write chunk `written` and to read chunk `read`, of so many bytes, took this rank so many seconds. Waits count
  // where ranks do not all do the same.
  void took(uint32_t written, uint32_t read, size_t bytes, double seconds) {
    if (!may_ || !decides_) return;
    std::optional<bool> wrote = tried(written);
    std::optional<bool> way = tried(read);
    if (!wrote && !way) return decide();
    if (!way || wrote != way) return;
    // The least: a rank that loses its core meanwhile does so in one or two of them.
    double& least = least_[size_][*way];
    const double cost = seconds / static_cast<double>(bytes);
    if (least == 0 || cost < least) least = cost;
  }

  // For tests: always so.
  void fix(bool around) { fixed_ = around; }

 private:
  static constexpr size_t kLeast = 32 << 10;
  static constexpr uint32_t kCycle = 1024;
  static constexpr uint32_t kFirst = 16;  // by then the slots have their memory
  static constexpr uint32_t kTrials = 6;
  static constexpr double kGain = 1.05;  // where there is no difference, memory is left to others

  // The way that is tried with a chunk, if any.
  std::optional<bool> tried(uint32_t chunk) const {
    const uint32_t at = first_ + chunk;
    if (at < kFirst) return std::nullopt;
    const uint32_t since = at < kCycle ? at - std::bit_floor(at) : at % kCycle;
    if (since >= 2 * kTrials) return std::nullopt;
    return since >= kTrials;
  }
  void decide() {
    auto& [through, around] = least_[size_];
    if (through > 0 && around > 0) (*decided_)[size_].store(through > kGain * around, std::memory_order_relaxed);
    through = around = 0;
  }

  SlotWays* decided_ = nullptr;
  bool decides_ = false;
  std::optional<bool> fixed_;
  // By size: chunks so far, and seconds a byte through the cache and around it.
  std::array<uint32_t, kSlotSizes> counts_{};
  double least_[kSlotSizes][2] = {};
  // Of the running collective.
  size_t size_ = 0;
  uint32_t first_ = 0;
  bool may_ = false;
};

}  // namespace hvd
