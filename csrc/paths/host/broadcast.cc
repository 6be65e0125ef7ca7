// SPDX-License-Identifier: Apache-2.0
// Broadcast from one member, in rounds of one slot.
//
// One host: the root packs, the others read; B in, B out. Several hosts: each column carries its share of every
// round. One round goes down a binomial tree in log2 H steps; many rounds go along the ring, each host forwarding
// while the next round arrives, so the time is that of one wire.
#include <algorithm>
#include <cstring>

#include "paths/host/comm.h"
#include "util/clock.h"

namespace hvd {

void Comm::broadcast(const char* in, char* out, size_t bytes, int root_index) {
  bool root = layout.my_index == root_index;
  if (root && out && out != in && bytes) std::memcpy(out, in, bytes);
  if (members() == 1 || bytes == 0) return;

  int hosts = layout.hosts();
  int columns = layout.columns;
  int me = layout.my_local;
  int root_host = 0;
  int root_local = -1;  // on this host, -1 elsewhere
  for (int h = 0; h < hosts; ++h) {
    const auto& on_host = layout.host_members[h];
    auto it = std::find(on_host.begin(), on_host.end(), root_index);
    if (it == on_host.end()) continue;
    root_host = h;
    if (h == layout.my_host) root_local = static_cast<int>(it - on_host.begin());
  }
  bool at_root = layout.my_host == root_host;
  int distance = (layout.my_host - root_host + hosts) % hosts;
  size_t piece = chunk(slot());
  auto rounds = static_cast<uint32_t>((bytes + piece - 1) / piece);
  take_turns(bytes, piece, rounds);
  copying_.begin(bytes, rounds);
  uint32_t base = lane_.reserve(3 * rounds + 1);

  for (uint32_t k = 0; k < rounds; ++k) {
    double start = now_s();
    uint32_t packed = base + 3 * k;
    uint32_t carried = packed + 1;
    uint32_t done = packed + 2;
    size_t begin = k * piece;
    size_t length = std::min(piece, bytes - begin);
    if (k >= 2) lane_.wait_all(done - 6);
    if (root) {
      InPhase phase(phases_, Phase::Pack);
      copy(in_turn(me, k), in + begin, length, copying_.around(k));
      lane_.publish(packed);
    }
    if (hosts > 1 && layout.owns_column()) {
      size_t first = length * static_cast<size_t>(me) / static_cast<size_t>(columns);
      size_t last = length * static_cast<size_t>(me + 1) / static_cast<size_t>(columns);
      if (at_root && !root) lane_.wait(locals_[root_local], packed);
      char* data = (at_root ? in_turn(root_local, k) : result_turn(me, k)) + first;
      Pieces share{{data, last - first}};
      if (rounds > 1) {
        if (!at_root) exchange(0, {}, share);
        if (distance + 1 < hosts) exchange(0, share, {});
      } else {
        for (int hop = 0; hop < layout.hops(); ++hop) {
          int reach = 1 << hop;
          if (distance < reach && distance + reach < hosts) exchange(hop, share, {});
          else if (distance >= reach && distance < 2 * reach) exchange(hop, {}, share);
        }
      }
      if (!at_root) lane_.publish(carried);
    }
    if (at_root && !root) {
      lane_.wait(locals_[root_local], packed);
      InPhase phase(phases_, Phase::Unpack);
      std::memcpy(out + begin, in_turn(root_local, k), length);
    } else if (!at_root) {
      for (int column = 0; column < columns; ++column) {
        size_t first = length * static_cast<size_t>(column) / static_cast<size_t>(columns);
        size_t last = length * static_cast<size_t>(column + 1) / static_cast<size_t>(columns);
        if (column != me) lane_.wait(locals_[column], carried);
        InPhase phase(phases_, Phase::Unpack);
        std::memcpy(out + begin + first, result_turn(column, k) + first, last - first);
      }
    }
    lane_.publish(done);
    copying_.took(k, k, length, now_s() - start);
  }
}

}  // namespace hvd
