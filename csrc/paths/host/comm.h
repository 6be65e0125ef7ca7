// SPDX-License-Identifier: Apache-2.0
// The collectives of one process set over shared memory on a host and a Transport between hosts.
// One file a collective; each says its steps and the bytes it moves.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "host/lane.h"
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

// Batches up to this size are reduced by every rank for itself: one round instead of two.
constexpr size_t kLightBytes = 16 << 10;

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

  std::vector<int> descriptors() const { return transport_ ? transport_->descriptors() : std::vector<int>{}; }

  // Every rank of the set calls these with the same sizes, between begin and end. `light`: only a reduction
  // of at most kLightBytes follows.
  void begin(uint64_t seq, bool light) { lane_.begin(seq, locals_, light && layout.hosts() == 1); }
  void end() { lane_.end(); }
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
  void exchange(int hop, const Pieces& out, const Pieces& in) {
    InPhase phase(phases_, Phase::Wire);
    transport_->exchange(hop, out, in);
  }
  size_t slot() { return lane_.segment().slot_bytes(); }
  char* in_slot(int local, int which) { return lane_.segment().in_slot(locals_[local], which); }
  char* result_slot(int local, int which) { return lane_.segment().result_slot(locals_[local], which); }

  void reduce_alone(const Spans& spans, const Reduction& how);
  void reduce_light(const Spans& spans, const Reduction& how);
  void reduce_pair(const Spans& spans, const Reduction& how);
  void reduce_chunked(const Spans& spans, const Reduction& how);
  void net_reduce(char* data, size_t count, int dtype, int op);
  void net_reduce_ring(char* data, size_t count, int dtype, int op);
  void net_reduce_gather(char* data, size_t count, int dtype, int op);

  Lane& lane_;
  std::vector<int> locals_;  // segment-local ranks of the members on this host, by local index
  std::unique_ptr<Transport> transport_;
  Phases* phases_ = nullptr;
  std::vector<char> scratch_;
  std::vector<const void*> sources_;  // of a kernel's call
};

}  // namespace hvd
