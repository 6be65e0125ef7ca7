// SPDX-License-Identifier: Apache-2.0
// The flight recorder: the last thousand collectives of this rank, at all times.
//
// A collective is noted when it is handed in and when each of its stages is reached; that costs a few stores, no lock
// and no memory. Any thread. All fields are atomic, so that json() may read along: it leaves out what is being written.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

class Recorder {
 public:
  static constexpr size_t kKept = 1000;
  static constexpr size_t kNameBytes = 120;  // longer names are cut
  static constexpr size_t kDims = 8;         // dimensions beyond are not kept

  // rank: this one's, which does not wait for itself.
  explicit Recorder(int rank) : rank_(rank), slots_(std::make_unique<std::array<Slot, kKept>>()) {}

  struct What {
    std::string_view name;
    const char* kind;  // of static memory, e.g. "ALLREDUCE"
    int dtype;
    const std::vector<int64_t>& shape;
    int64_t bytes;
    int process_set;
  };
  // Handed in. Returns the number by which the rest is told.
  uint64_t queued(const What& what, double now);
  // The rest. What has been overwritten since is passed over.
  void announced(uint64_t number, double now);
  void started(uint64_t number, double now, int last_rank);
  void ended(uint64_t number, double now, bool ok);

  // An array of objects, oldest first, of the newest collectives; see hvd_recent.
  std::string json(size_t newest = kKept) const;

 private:
  enum State : int32_t { kQueued, kAnnounced, kRunning, kDone, kFailed };
  struct Slot {
    std::atomic<uint64_t> number{0};  // 0: being written
    std::atomic<uint64_t> name[kNameBytes / 8];
    std::atomic<int64_t> shape[kDims];
    std::atomic<const char*> kind{""};
    std::atomic<int64_t> bytes{0};
    std::atomic<int32_t> dtype{0}, process_set{0}, dims{0}, last_rank{-1}, state{kQueued};
    std::atomic<double> queued{0}, announced{0}, started{0}, ended{0};
  };

  Slot* slot_of(uint64_t number) const;
  std::string object(const Slot& slot, uint64_t number, double epoch) const;

  const int rank_;
  std::atomic<uint64_t> next_{1};
  const std::unique_ptr<std::array<Slot, kKept>> slots_;
};

}  // namespace hvd
