// SPDX-License-Identifier: Apache-2.0
// The memory the ranks of one host share: an unnamed file, so that nothing is left behind by any death.
//
//   header | per rank: state, mailbox up, mailbox down, quick payload[2] | per rank: staging slots in[2], result[2]
//
// Pages that are never touched cost nothing, so the slots can be generous. One rank alone has the same layout in
// memory of its own.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "util/cores.h"
#include "util/fd.h"

namespace hvd {

constexpr size_t kMailboxBytes = 64 << 10;
// What a rank may bring to a QuickRound. Pages that no call uses take no memory.
constexpr size_t kQuickBytes = 512 << 10;

// A ring of bytes from one process to another. Positions only grow.
struct Mailbox {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  std::atomic<uint32_t> writer_waits;  // the writer found no room and wants its bell rung
  alignas(64) char bytes[kMailboxBytes];
};

// Of collectives by their size, from 32 KiB, 64 KiB, ..., 128 MiB on: whether slots are written around the cache.
constexpr size_t kSlotSizes = 13;
using SlotWays = std::array<std::atomic<bool>, kSlotSizes>;

struct RankState {
  // Data plane: seq << 24 | step, see Lane. Its low half is the futex word.
  alignas(64) std::atomic<uint64_t> progress;
  std::atomic<uint32_t> progress_waiters;
  std::atomic<int32_t> core;  // where it last wrote any of these, counted from 1
  // Control plane: counts rings; sleepers want the eventfd written as well.
  alignas(64) std::atomic<uint32_t> bell;
  std::atomic<uint32_t> sleepers;
  // Which QuickRound it is in, counted from 1; 0: none.
  alignas(64) std::atomic<uint32_t> in_round;
  // For the sets of which it is the first rank of its host; see SlotWriting.
  alignas(64) SlotWays reducing;
  SlotWays copying;
  // For the obituary: what this rank was last doing. A torn read is harmless.
  alignas(64) char last[192];
};

struct SegmentHeader {
  uint64_t magic;
  uint32_t version;
  int32_t local_size;
  uint64_t slot_bytes;
  std::atomic<uint32_t> aborted;  // 0 no, 1 being written, 2 text is there
  char abort_text[2048];
  alignas(64) std::atomic<uint64_t> quick_round;  // see QuickRound; its low half is the futex word
  std::atomic<uint32_t> quick_sleepers;
  alignas(64) std::atomic<uint32_t> quick_end;  // of a round of all hosts, see QuickCall
};

class Segment {
 public:
  // Creates the file for local_size ranks; returns its descriptor or throws Refused.
  static int create(int local_size, size_t slot_bytes);
  // Maps a file that create() made, or private memory if there is none.
  Segment(UniqueFd file, int local_size, size_t slot_bytes);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  SegmentHeader& header() { return *reinterpret_cast<SegmentHeader*>(base_); }
  RankState& rank(int local) { return *reinterpret_cast<RankState*>(base_ + rank_offset(local)); }
  Mailbox& up(int local) { return *reinterpret_cast<Mailbox*>(base_ + rank_offset(local) + kStateBytes); }
  Mailbox& down(int local) {
    return *reinterpret_cast<Mailbox*>(base_ + rank_offset(local) + kStateBytes + sizeof(Mailbox));
  }
  // Spinning for a rank that needs this very core keeps it from running, unless every turn offers it the core.
  void note_core(int local) { rank(local).core.store(sched_getcpu() + 1, std::memory_order_relaxed); }
  // Where it was last seen, or -1.
  int core_of(int local) { return rank(local).core.load(std::memory_order_relaxed) - 1; }
  bool on_my_core(int local) { return core_of(local) == sched_getcpu(); }
  // Whether a rank has to share its core with another. Of two on one core, the one with the higher number moves to one
  // where no rank was last seen, if it can.
  bool shares_core(int me, CoreLeaver& core, double now);
  bool shares_core_with(int rival, int me, CoreLeaver& core, double now);
  // Moves this rank to a core where no rank was last seen; false if there is none, or if it moved just now.
  bool make_way(int me, CoreLeaver& core, double now);
  // More ranks than cores: moves this one if the cores are unevenly shared.
  void even_out(int me, CoreLeaver& core, double now);
  // Says what a rank is doing, for its obituary. The parts are joined and cut to what fits.
  void note_last(int local, std::initializer_list<std::string_view> parts);
  std::string last(int local);
  // Of a round of this parity.
  char* quick_payload(int local, uint32_t parity) {
    return base_ + rank_offset(local) + kStateBytes + 2 * sizeof(Mailbox) + parity * kQuickBytes;
  }
  // Staging slots of a rank; which = 0 or 1.
  char* in_slot(int local, int which) { return slots(local) + which * slot_bytes_; }
  char* result_slot(int local, int which) { return slots(local) + (2 + which) * slot_bytes_; }
  size_t slot_bytes() const { return slot_bytes_; }

  // First caller wins; wakes every sleeper of this host.
  void abort(const std::string& text);
  bool aborted() { return header().aborted.load(std::memory_order_acquire) != 0; }
  std::string abort_text();

 private:
  static constexpr size_t kStateBytes = 4096;
  static constexpr size_t kHeaderBytes = 4096;
  static constexpr size_t kRankBytes = (kStateBytes + 2 * sizeof(Mailbox) + 2 * kQuickBytes + 4095) & ~size_t{4095};
  static size_t rank_offset(int local) { return kHeaderBytes + static_cast<size_t>(local) * kRankBytes; }
  static size_t total_bytes(int local_size, size_t slot_bytes) {
    return rank_offset(local_size) + static_cast<size_t>(local_size) * 4 * slot_bytes;
  }
  char* slots(int local) { return base_ + rank_offset(local_size_) + static_cast<size_t>(local) * 4 * slot_bytes_; }

  char* base_ = nullptr;
  size_t bytes_ = 0;
  int local_size_ = 1;
  size_t slot_bytes_ = 0;
};

}  // namespace hvd
