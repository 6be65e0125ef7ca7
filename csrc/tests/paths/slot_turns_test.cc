// SPDX-License-Identifier: Apache-2.0
#include "paths/host/slot_turns.h"

#include <random>
#include <set>

#include "tests/check.h"

using namespace hvd;
using namespace hvd::testing;

TEST(small_reductions_go_all_around_the_room) {
  SlotTurns turns;
  std::set<size_t> places;
  for (int i = 0; i < 8; ++i) {
    turns.begin(2 << 20, 4 << 20, 256 << 10, 1);
    places.insert(turns.at(0));
  }
  CHECK_EQ(places.size(), size_t{8});
  turns.begin(2 << 20, 4 << 20, 256 << 10, 1);
  CHECK(places.count(turns.at(0)) == 1);
}

// A chunk is packed while another rank still reads the one before.
TEST(neighbours_do_not_overlap_and_stay_in_the_room_whatever_came_before) {
  std::mt19937 random(11);
  SlotTurns turns, others;
  for (int i = 0; i < 20000; ++i) {
    const size_t slot = (16 << 10) + (i % 3 ? 0 : 13);
    const size_t room = 2 * slot;
    const size_t wanted = 1 + random() % (2 * room);
    const size_t chunk = 1 + random() % slot;
    const uint32_t chunks = 1 + random() % 5;
    turns.begin(wanted, room, chunk, chunks);
    others.begin(wanted, room, chunk, chunks);
    const Case c("wanted", wanted, "room", room, "chunk", chunk, "of", chunks);
    for (uint32_t k = 0; k < chunks; ++k) {
      CHECK(turns.at(k) + chunk <= room);
      CHECK_EQ(turns.at(k), others.at(k));
      if (k) CHECK(turns.at(k) + chunk <= turns.at(k - 1) || turns.at(k - 1) + chunk <= turns.at(k));
    }
  }
}

TEST(a_reduction_of_nothing_takes_no_turn) {
  SlotTurns turns;
  turns.begin(32 << 10, 32 << 10, 0, 0);
  turns.begin(32 << 10, 32 << 10, 4096, 1);
  CHECK_EQ(turns.at(0), size_t{0});
}
