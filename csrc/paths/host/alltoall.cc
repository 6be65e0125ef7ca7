// SPDX-License-Identifier: Apache-2.0
// Alltoall with unequal pieces, in rounds that move up to one piece for every pair of members.
//
// One host: each rank packs one piece for each other rank and reads its own from everybody's slot. Several hosts:
// pieces for other hosts travel around the ring of the sender's column and get off where they belong, H/2 wires a
// byte on average.
#include <algorithm>
#include <cstring>

#include "paths/host/comm.h"
#include "util/clock.h"
#include "util/round.h"

namespace hvd {

void Comm::alltoall(const std::vector<size_t>& bytes, const std::vector<const char*>& send,
                    const std::vector<char*>& recv) {
  int n = members();
  int me = layout.my_index;
  auto pair = [&](int s, int d) {
    return bytes[static_cast<size_t>(s) * static_cast<size_t>(n) + static_cast<size_t>(d)];
  };
  if (pair(me, me)) std::memmove(recv[me], send[me], pair(me, me));
  if (n == 1) return;

  int hosts = layout.hosts();
  int columns = layout.columns;
  int my_local = layout.my_local;
  size_t most_locals = 0;
  for (const auto& on_host : layout.host_members) most_locals = std::max(most_locals, on_host.size());
  size_t longest = 0;
  for (int s = 0; s < n; ++s)
    for (int d = 0; d < n; ++d)
      if (s != d) longest = std::max(longest, pair(s, d));
  size_t pieces = static_cast<size_t>(n) * (hosts > 1 ? most_locals : 1);  // in a slot
  size_t piece = slot() / pieces & ~(kPieceAlign - 1);
  if (piece == 0) piece = slot() / pieces;  // many ranks: less than a line
  piece = std::min(piece, round_up(longest, kPieceAlign));
  auto rounds = piece ? static_cast<uint32_t>((longest + piece - 1) / piece) : 0;
  take_turns(pieces * piece, slot(), rounds);
  copying_.begin(longest * pieces, rounds);
  uint32_t base = lane_.reserve(3 * rounds + 1);
  const auto& neighbours = layout.host_members[layout.my_host];

  auto length = [&](int s, int d, uint32_t k) {
    size_t begin = k * piece;
    return pair(s, d) > begin ? std::min(piece, pair(s, d) - begin) : 0;
  };
  // Where a column keeps the piece of a member of another host for a local rank.
  auto kept = [&](int column, int source, int local, uint32_t k) {
    size_t index = 0;
    for (int s = 1; s < hosts; ++s)
      for (int member : layout.carried((layout.my_host - s + hosts) % hosts, column)) {
        if (member == source)
          return result_turn(column, k) + (index * neighbours.size() + static_cast<size_t>(local)) * piece;
        ++index;
      }
    return static_cast<char*>(nullptr);
  };

  std::vector<char> travelling[2];
  for (uint32_t k = 0; k < rounds; ++k) {
    double start = now_s();
    bool around = copying_.around(k);
    uint32_t packed = base + 3 * k;
    uint32_t carried_round = packed + 1;
    uint32_t done = packed + 2;
    if (k >= 2) lane_.wait_all(done - 6);
    for (int d = 0; d < n; ++d)
      if (d != me && length(me, d, k))
        copy(in_turn(my_local, k) + static_cast<size_t>(d) * piece, send[d] + k * piece, length(me, d, k), around);
    lane_.publish(packed);

    if (hosts > 1 && layout.owns_column()) {
      lane_.wait_all(packed);
      for (int s = 1; s < hosts; ++s) {
        // Leaving: what left its origin s-1 hosts ago and still has to go on. Arriving: the same, one host back.
        int from = (layout.my_host - s + 1 + hosts) % hosts;
        int origin = (layout.my_host - s + hosts) % hosts;
        Pieces out;
        Pieces in;
        size_t used = 0;
        for (int source : layout.carried(from, my_local))
          for (int t = s; t < hosts; ++t)
            for (int d : layout.host_members[(from + t) % hosts]) {
              size_t bytes_now = length(source, d, k);
              if (from == layout.my_host) {
                auto at = std::find(neighbours.begin(), neighbours.end(), source) - neighbours.begin();
                out.push_back({in_turn(static_cast<int>(at), k) + static_cast<size_t>(d) * piece, bytes_now});
              } else {
                out.push_back({travelling[(s - 1) & 1].data() + used, bytes_now});
                used += bytes_now;
              }
            }
        size_t onward = 0;
        for (int source : layout.carried(origin, my_local))
          for (int t = s + 1; t < hosts; ++t)
            for (int d : layout.host_members[(origin + t) % hosts]) onward += length(source, d, k);
        travelling[s & 1].resize(onward);
        size_t filled = 0;
        for (int source : layout.carried(origin, my_local))
          for (int t = s; t < hosts; ++t) {
            const auto& there = layout.host_members[(origin + t) % hosts];
            for (size_t i = 0; i < there.size(); ++i) {
              size_t bytes_now = length(source, there[i], k);
              if (t == s) {
                in.push_back({kept(my_local, source, static_cast<int>(i), k), bytes_now});
              } else {
                in.push_back({travelling[s & 1].data() + filled, bytes_now});
                filled += bytes_now;
              }
            }
          }
        exchange(0, out, in);
      }
      lane_.publish(carried_round);
    }

    for (int i = 1; i < layout.locals(); ++i) {
      int other = (my_local + i) % layout.locals();
      int source = neighbours[other];
      size_t bytes_now = length(source, me, k);
      if (!bytes_now) continue;
      lane_.wait(locals_[other], packed);
      std::memcpy(recv[source] + k * piece, in_turn(other, k) + static_cast<size_t>(me) * piece, bytes_now);
    }
    for (int column = 0; hosts > 1 && column < columns; ++column) {
      if (column != my_local) lane_.wait(locals_[column], carried_round);
      for (int s = 1; s < hosts; ++s)
        for (int source : layout.carried((layout.my_host - s + hosts) % hosts, column))
          if (size_t bytes_now = length(source, me, k))
            std::memcpy(recv[source] + k * piece, kept(column, source, my_local, k), bytes_now);
    }
    lane_.publish(done);
    copying_.took(k, k, std::min(piece, longest - k * piece), now_s() - start);
  }
}

}  // namespace hvd
