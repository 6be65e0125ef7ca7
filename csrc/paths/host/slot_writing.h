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
// and again from chunks 32, 64, 128, ..., 1024, 2048, 3072, ... on. In between, several chunks in a row that take far
// longer than usual make all change to the other way at once; if that is no faster, they change back.
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

// Notices between two verdicts that the way in use has become slow, and whether the other one is faster. Costs are
// seconds a byte.
class SlotSuspicion {
 public:
  static constexpr double kGain = 1.05;  // where there is no difference, memory is left to others

  // After a verdict: the way in use may be another, and what it usually costs is found out anew.
  void begin(double usual = 0) {
    usual_ = usual;
    before_ = 0;
    chunks_ = 0;
  }
  // A chunk that went the way in use; true: the other is to be used from now on.
  bool saw(double cost) {
    if (before_ == 0) {
      if (usual_ == 0) usual_ = cost;
      if (cost <= kSlow * usual_) {
        usual_ += (cost - usual_) / kChunks;
        chunks_ = 0;
        return false;
      }
      if (!enough(cost, 0)) return false;
      before_ = least_;
      chunks_ = 0;
      return true;
    }
    if (!enough(cost, kMixed)) return false;
    const bool back = least_ * kGain > before_;
    begin(back ? before_ : least_);
    return back;
  }

 private:
  static constexpr double kSlow = 2.5;    // times what it usually costs
  static constexpr uint32_t kChunks = 6;  // a rank that loses its core does so in one or two of them
  static constexpr uint32_t kMixed = 3;   // after a change: written one way, read the other

  // Counts a chunk, after some that do not matter; true once there are enough to go by the least of them.
  bool enough(double cost, uint32_t after) {
    if (++chunks_ <= after) return false;
    least_ = chunks_ == after + 1 ? cost : std::min(least_, cost);
    return chunks_ == after + kChunks;
  }

  double usual_ = 0;     // 0: not known yet
  double before_ = 0;    // while the other way is tried: what this one cost; 0: it is not
  double least_ = 0;     // of the chunks that are counted
  uint32_t chunks_ = 0;  // in a row: slow ones, or of the other way
};

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
    const double cost = seconds / static_cast<double>(bytes);
    if (!wrote && !way) {
      decide();
      std::atomic<bool>& decided = (*decided_)[size_];
      if (suspicion_[size_].saw(cost))
        decided.store(!decided.load(std::memory_order_relaxed), std::memory_order_relaxed);
      return;
    }
    if (!way || wrote != way) return;
    // The least: a rank that loses its core meanwhile does so in one or two of them.
    double& least = least_[size_][*way];
    if (least == 0 || cost < least) least = cost;
  }

  // For tests: always so.
  void fix(bool around) { fixed_ = around; }

 private:
  static constexpr size_t kLeast = 32 << 10;
  static constexpr uint32_t kCycle = 1024;
  static constexpr uint32_t kFirst = 16;  // by then the slots have their memory
  static constexpr uint32_t kTrials = 6;

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
    if (through > 0 && around > 0) {
      (*decided_)[size_].store(through > SlotSuspicion::kGain * around, std::memory_order_relaxed);
      suspicion_[size_].begin();
    }
    through = around = 0;
  }

  SlotWays* decided_ = nullptr;
  bool decides_ = false;
  std::optional<bool> fixed_;
  // By size: chunks so far, and seconds a byte through the cache and around it.
  std::array<uint32_t, kSlotSizes> counts_{};
  double least_[kSlotSizes][2] = {};
  std::array<SlotSuspicion, kSlotSizes> suspicion_;
  // Of the running collective.
  size_t size_ = 0;
  uint32_t first_ = 0;
  bool may_ = false;
};

}  // namespace hvd
