// SPDX-License-Identifier: Apache-2.0
// Allgather of unequal blocks, in rounds of what fits into the slots.
//
// One host: every rank packs its next piece, and reads the pieces of the others. Memory traffic a rank: its own
// block in, everything out. Several hosts: the members of a host are dealt to its columns, each column passes
// pieces around the ring in H-1 steps, so every byte crosses each wire once.
#include <algorithm>
#include <cstring>

#include "paths/host/comm.h"
#include "util/clock.h"

namespace hvd {

void Comm::allgather(const Spans& mine, const std::vector<size_t>& blocks, const std::vector<Spans>& sinks) {
  for (size_t i = 0; i < mine.all().size(); ++i) {
    const Span& from = mine.all()[i];
    char* to = sinks[layout.my_index].all()[i].out;
    if (to && to != from.in && from.bytes) std::memcpy(to, from.in, from.bytes);
  }
  if (members() == 1) return;

  int hosts = layout.hosts();
  int columns = layout.columns;
  size_t per_column = 0;  // members of all hosts that one column carries
  for (const auto& on_host : layout.host_members)
    per_column += (on_host.size() + static_cast<size_t>(columns) - 1) / static_cast<size_t>(columns);
  size_t piece = hosts == 1 ? slot() : slot() / per_column & ~(kPieceAlign - 1);
  size_t longest = *std::max_element(blocks.begin(), blocks.end());
  size_t total = 0;
  for (size_t b : blocks) total += b;
  bool large = total >= kLargeBytes;
  auto rounds = static_cast<uint32_t>((longest + piece - 1) / piece);
  take_turns(hosts == 1 ? longest : slot(), slot(), rounds);
  copying_.begin(longest, rounds);
  uint32_t base = lane_.reserve(3 * rounds + 1);
  int me = layout.my_local;
  const auto& neighbours = layout.host_members[layout.my_host];

  // Bytes of a member in round k.
  auto length = [&](int member, uint32_t k) {
    size_t begin = k * piece;
    return blocks[member] > begin ? std::min(piece, blocks[member] - begin) : 0;
  };
  // Where a column keeps the pieces of other hosts: by distance around the ring, then by member.
  auto place = [&](int column, int host, uint32_t k, auto visit) {
    size_t offset = 0;
    for (int s = 1; s < hosts; ++s) {
      int from = (layout.my_host - s + hosts) % hosts;
      for (int member : layout.carried(from, column)) {
        if (from == host) visit(member, result_turn(column, k) + offset);
        offset += piece;
      }
    }
  };
  auto pieces_of = [&](int column, int host, uint32_t k) {
    Pieces pieces;
    if (host == layout.my_host) {
      for (size_t i = static_cast<size_t>(column); i < neighbours.size(); i += static_cast<size_t>(columns))
        pieces.push_back({in_turn(static_cast<int>(i), k), length(neighbours[i], k)});
    } else {
      place(column, host, k, [&](int member, char* at) { pieces.push_back({at, length(member, k)}); });
    }
    return pieces;
  };

  for (uint32_t k = 0; k < rounds; ++k) {
    double start = now_s();
    bool around = copying_.around(k);
    uint32_t packed = base + 3 * k;
    uint32_t carried_round = packed + 1;
    uint32_t done = packed + 2;
    if (k >= 2) lane_.wait_all(done - 6);
    size_t begin = k * piece;
    {
      InPhase phase(phases_, Phase::Pack);
      mine.each(begin, begin + length(layout.my_index, k),
                [&](const Span& part, size_t at) { copy(in_turn(me, k) + at, part.in, part.bytes, around); });
    }
    lane_.publish(packed);
    if (hosts > 1 && layout.owns_column()) {
      lane_.wait_all(packed);
      for (int s = 1; s < hosts; ++s)
        exchange(0, pieces_of(me, (layout.my_host - s + 1 + hosts) % hosts, k),
                 pieces_of(me, (layout.my_host - s + hosts) % hosts, k));
      lane_.publish(carried_round);
    }
    for (int i = 1; i < layout.locals(); ++i) {
      int other = (me + i) % layout.locals();
      int member = neighbours[other];
      size_t n = length(member, k);
      if (!n) continue;
      lane_.wait(locals_[other], packed);
      InPhase phase(phases_, Phase::Unpack);
      sinks[member].unpack(begin, begin + n, in_turn(other, k), large);
    }
    for (int column = 0; hosts > 1 && column < columns; ++column) {
      if (column != me) lane_.wait(locals_[column], carried_round);
      for (int host = 0; host < hosts; ++host)
        if (host != layout.my_host)
          place(column, host, k,
                [&](int member, const char* at) { sinks[member].unpack(begin, begin + length(member, k), at, large); });
    }
    lane_.publish(done);
    copying_.took(k, k, std::min(piece, longest - begin), now_s() - start);
  }
}

}  // namespace hvd
