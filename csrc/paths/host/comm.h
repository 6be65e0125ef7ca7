// SPDX-License-Identifier: Apache-2.0
// The collectives of one process set over shared memory on a host and a Transport between hosts.
// One file a collective; each says its steps and the bytes it moves.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "host/lane.h"
#include "paths/host/slot_turns.h"
#include "paths/host/slot_writing.h"
#include "paths/host/spans.h"
#include "paths/host/transport.h"
#include "paths/phases.h"
#include "world/set_layout.h"

namespace hvd {

struct Reduction {
  int dtype;
  int op;  // hvd_reduce_op, Average as Sum with a divisor
  double prescale = 1.0;
  double postscale = 1.0;
  int64_t divisor = 1;
};

// How batches are cut. Changes between two batches, on every rank at the same one.
struct Sizes {
  size_t small = 16 << 10;  // reductions up to this take one round instead of two
  size_t slot = 0;          // bytes of a staging slot that are used; 0: all
  size_t chunk = 0;         // of a reduction or broadcast, for the latter two; 0: what each finds best
};

// Pieces of a slot are cut in cache lines.
constexpr size_t kPieceAlign = 64;

// The smallest staging slot with which these members can exchange anything: in an alltoall every pair of them has a
// part of a slot.
size_t smallest_slot(const SetLayout& layout);

class Comm {
 public:
  Comm(const Topology& topology, Lane& lane, std::shared_ptr<const SetLayout> set);

  // Several hosts: set once the links are there.
  void attach(std::unique_ptr<Transport> transport) { transport_ = std::move(transport); }
  bool ready() const { return layout.hosts() == 1 || !layout.owns_column() || transport_; }

  void tune(const Sizes& sizes) { sizes_ = sizes; }
  // Reductions of one host up to this size are light: every rank reduces for itself.
  size_t small_bytes() { return std::min(sizes_.small, lane_.segment().slot_bytes()); }

  std::vector<int> descriptors() const { return transport_ ? transport_->descriptors() : std::vector<int>{}; }

  // Every rank of the set calls these with the same sizes, between begin and end. `light`: only a reduction
  // of at most small_bytes() follows.
  void begin(uint64_t seq, bool light) { lane_.begin(seq, locals_, light && layout.hosts() == 1); }
  void end() { lane_.end(); }
  // For tests: all slots are written so.
  void fix_slot_writing(bool around) {
    reducing_.fix(around);
    copying_.fix(around);
  }
  // Where to note what the time goes into; null: nowhere.
  void trace(Phases* phases) { phases_ = phases; }
  // All local ranks have left the collective before: its slots may be used again within the same batch.
  void settle();

  void reduce(const Spans& spans, const Reduction& how);
  void adasum(const Spans& spans, const Reduction& how);
  // blocks[i]: bytes of member i. Mine come from `mine`; member i's land in sinks[i] (nullptr: not wanted).
  void allgather(const Spans& mine, const std::vector<size_t>& blocks, const std::vector<Spans>& sinks);
  void broadcast(const char* in, char* out, size_t bytes, int root_index);
  // bytes[s * n + d]: from member s to member d. send[d] is where mine for d begins, recv[s] where s's goes.
  void alltoall(const std::vector<size_t>& bytes, const std::vector<const char*>& send, const std::vector<char*>& recv);

  const std::shared_ptr<const SetLayout> shared_layout;
  const SetLayout& layout;  // *shared_layout

 private:
  int members() const { return layout.size(); }
  size_t slot() {
    size_t all = lane_.segment().slot_bytes();
    return sizes_.slot ? std::min(sizes_.slot, all) : all;
  }
  size_t chunk(size_t otherwise) {
    if (!sizes_.chunk) return std::min(slot(), otherwise);
    return std::min(std::max(sizes_.chunk, kLeastChunk), lane_.segment().slot_bytes()) & ~(kPieceAlign - 1);
  }
  // A collective whose chunks take so much of a slot; all of it, or less if it is shorter than one.
  void take_turns(size_t total, size_t chunk, uint32_t chunks);
  void exchange(int hop, const Pieces& out, const Pieces& in) {
    InPhase phase(phases_, Phase::Wire);
    transport_->exchange(hop, out, in);
  }
  char* in_slot(int local, int which) { return lane_.segment().in_slot(locals_[local], which); }
  // Of a chunk of the running collective.
  char* in_turn(int local, uint32_t chunk) { return in_slot(local, 0) + turns_.at(chunk); }
  char* result_turn(int local, uint32_t chunk) {
    return lane_.segment().result_slot(locals_[local], 0) + turns_.at(chunk);
  }

  // Into a slot.
  static void copy(char* to, const char* from, size_t bytes, bool around);
  void pack(const Spans& spans, size_t begin, size_t end, char* slot, const Reduction& how, bool around);
  void reduce_alone(const Spans& spans, const Reduction& how);
  void reduce_light(const Spans& spans, const Reduction& how);
  void reduce_pair(const Spans& spans, const Reduction& how);
  void reduce_chunked(const Spans& spans, const Reduction& how);
  // In place, over the hosts of this column, to the finished result.
  void net_reduce(char* data, size_t count, const Reduction& how);
  void net_reduce_ring(char* data, size_t count, const Reduction& how);
  void net_reduce_gather(char* data, size_t count, const Reduction& how);

  static constexpr size_t kLeastChunk = 4 << 10;

  Lane& lane_;
  Sizes sizes_;
  SlotTurns turns_;
  SlotWriting reducing_;     // for reductions
  SlotWriting copying_;      // for everything else
  std::vector<int> locals_;  // segment-local ranks of the members on this host, by local index
  std::unique_ptr<Transport> transport_;
  Phases* phases_ = nullptr;
  std::vector<char> scratch_;
  std::vector<const void*> sources_;  // of a kernel's call
};

}  // namespace hvd
