// SPDX-License-Identifier: Apache-2.0
// The collectives of one process set over shared memory on a host and a Transport between hosts.
// One file a collective; each says its steps and the bytes it moves.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "host/lane.h"
#include "paths/host/transport.h"
#include "world/topology.h"

namespace hvd {

// One tensor, or the part of it that a rank wants back. in == nullptr: zeros (a joined rank).
// out == nullptr: the result is not wanted here.
struct Span {
  const char* in;
  char* out;
  size_t bytes;
};

// Tensors that travel together, seen as one run of bytes.
class Stream {
 public:
  void add(const void* in, void* out, size_t bytes);
  size_t bytes() const { return starts_.empty() ? 0 : starts_.back() + spans_.back().bytes; }
  const std::vector<Span>& spans() const { return spans_; }
  // Calls f(span part, offset from `begin`) for the parts that cover [begin, end).
  template <typename F>
  void each(size_t begin, size_t end, F f) const;
  // Copies `from` to the outputs that cover [begin, end); around the cache when the whole is `large`.
  void unpack(size_t begin, size_t end, const char* from, bool large) const;

 private:
  size_t index_at(size_t offset) const;
  std::vector<Span> spans_;
  std::vector<size_t> starts_;
};

struct Reduction {
  int dtype;
  int op;  // hvd_reduce_op, Average as Sum with a divisor
  double prescale = 1.0;
  double postscale = 1.0;
  int64_t divisor = 1;
};

class Comm {
 public:
  Comm(const Topology& topology, Lane& lane, SetLayout layout);

  // Several hosts: set once the links are there.
  void attach(std::unique_ptr<Transport> transport) { transport_ = std::move(transport); }
  bool ready() const { return layout.hosts() == 1 || !layout.owns_column() || transport_; }

  std::vector<int> descriptors() const { return transport_ ? transport_->descriptors() : std::vector<int>{}; }

  // Every rank of the set calls these with the same sizes, between begin and end. `light`: only a reduction
  // of at most kLightBytes follows.
  void begin(uint64_t seq, bool light) { lane_.begin(seq, locals_, light && layout.hosts() == 1); }
  void end() { lane_.end(); }

  void reduce(const Stream& stream, const Reduction& how);
  void adasum(const Stream& stream, const Reduction& how);
  // blocks[i]: bytes of member i. Mine come from `mine`; member i's land in sinks[i] (nullptr: not wanted).
  void allgather(const Stream& mine, const std::vector<size_t>& blocks, const std::vector<Stream>& sinks);
  void broadcast(const char* in, char* out, size_t bytes, int root_index);
  // bytes[s * n + d]: from member s to member d. send[d] is where mine for d begins, recv[s] where s's goes.
  void alltoall(const std::vector<size_t>& bytes, const std::vector<const char*>& send, const std::vector<char*>& recv);

  const SetLayout layout;

 private:
  int members() const { return static_cast<int>(layout.members.size()); }
  size_t slot() { return lane_.segment().slot_bytes(); }
  char* in_slot(int local, int which) { return lane_.segment().in_slot(locals_[local], which); }
  char* result_slot(int local, int which) { return lane_.segment().result_slot(locals_[local], which); }

  // All local ranks have left the collective before: its slots may be used again within the same batch.
  void settle();
  void reduce_alone(const Stream& stream, const Reduction& how);
  void reduce_light(const Stream& stream, const Reduction& how);
  void reduce_pair(const Stream& stream, const Reduction& how);
  void reduce_chunked(const Stream& stream, const Reduction& how);
  void net_reduce(char* data, size_t count, int dtype, int op);
  void net_reduce_ring(char* data, size_t count, int dtype, int op);
  void net_reduce_gather(char* data, size_t count, int dtype, int op);

  Lane& lane_;
  std::vector<int> locals_;  // segment-local ranks of the members on this host, by local index
  std::unique_ptr<Transport> transport_;
  std::vector<char> scratch_;
};

// Batches up to this size are reduced by every rank for itself: one round instead of two.
constexpr size_t kLightBytes = 16 << 10;

// Writing around the cache only pays for results that do not fit into it.
constexpr size_t kStreamBytes = 8 << 20;

inline size_t Stream::index_at(size_t offset) const {
  size_t low = 0;
  size_t high = spans_.size();
  while (high - low > 1) {
    size_t middle = (low + high) / 2;
    (starts_[middle] <= offset ? low : high) = middle;
  }
  return low;
}

template <typename F>
void Stream::each(size_t begin, size_t end, F f) const {
  if (begin >= end) return;
  for (size_t i = index_at(begin), at = begin; at < end; ++i) {
    const Span& span = spans_[i];
    size_t inside = at - starts_[i];
    if (inside >= span.bytes) continue;
    size_t n = span.bytes - inside < end - at ? span.bytes - inside : end - at;
    f(Span{span.in ? span.in + inside : nullptr, span.out ? span.out + inside : nullptr, n}, at - begin);
    at += n;
  }
}

}  // namespace hvd
