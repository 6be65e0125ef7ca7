// SPDX-License-Identifier: Apache-2.0
#include "paths/host/comm.h"

#include <algorithm>
#include <cstring>

#include "paths/kernels/kernels.h"

namespace hvd {
namespace {

// Staging memory that a collective goes around: more than a core's own cache holds beside everything else, so that what
// is written next is not there, and little of the cache that all share. With twice as much, 4 MiB of 4 ranks take a
// quarter longer; with half as much, 64 KiB of 2 ranks take half as long again.
constexpr size_t kRoomOfAll = 4 << 20;
constexpr size_t kRoomOfEach = 1 << 20;

}  // namespace

size_t smallest_slot(const SetLayout& layout) {
  size_t most_locals = 1;
  if (layout.hosts() > 1)
    for (const auto& on_host : layout.host_members) most_locals = std::max(most_locals, on_host.size());
  return std::max({Sizes{}.small, layout.members.size() * kPieceAlign, layout.members.size() * most_locals});
}

void Comm::take_turns(size_t total, size_t chunk, uint32_t chunks) {
  size_t room = std::max(kRoomOfEach, kRoomOfAll / locals_.size());
  turns_.begin(room, 2 * lane_.segment().slot_bytes(), std::min(chunk, total), chunks);
}

Comm::Comm(const Topology& topology, Lane& lane, std::shared_ptr<const SetLayout> set)
    : shared_layout(std::move(set)), layout(*shared_layout), lane_(lane) {
  if (layout.my_host >= 0)
    for (int index : layout.host_members[layout.my_host])
      locals_.push_back(topology.local_rank_of[layout.members[index]]);
  if (locals_.empty()) return;
  RankState& first = lane.segment().rank(locals_[0]);
  reducing_.follow(first.reducing, layout.my_local == 0);
  copying_.follow(first.copying, layout.my_local == 0);
}

void Comm::copy(char* to, const char* from, size_t bytes, bool around) {
  if (around) kernels::copy_stream(to, from, bytes);
  else std::memcpy(to, from, bytes);
}

void Comm::settle() {
  uint32_t step = lane_.reserve(1);
  lane_.publish(step);
  lane_.wait_all(step);
}

}  // namespace hvd
