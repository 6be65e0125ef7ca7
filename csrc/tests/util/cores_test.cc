// SPDX-License-Identifier: Apache-2.0
#include "util/cores.h"

#include <random>
#include <vector>

#include "tests/check.h"

using namespace hvd;

TEST(a_thread_that_may_move_moves_at_most_once_a_millisecond) {
  cpu_set_t before, after;
  CHECK_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CoreLeaver core;
  CHECK_EQ(core.leave(1.0), usable_cores() > 1);
  CHECK(!core.leave(1.0005));
  CHECK_EQ(core.leave(1.002), usable_cores() > 1);
  CHECK_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  CHECK(CPU_EQUAL(&before, &after));  // it may go back when there is room
}

TEST(a_thread_moves_only_to_a_core_that_is_not_taken) {
  cpu_set_t mine;
  CHECK_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
  CoreLeaver core;
  CHECK(!core.leave(1.0, mine));
  int here = sched_getcpu();
  int free = -1;
  for (int i = 0; i < CPU_SETSIZE && free < 0; ++i)
    if (i != here && CPU_ISSET(static_cast<size_t>(i), &mine)) free = i;
  if (free < 0) return;  // it has one core
  cpu_set_t taken = mine;
  CPU_CLR(static_cast<size_t>(free), &taken);
  CHECK(core.leave(2.0, taken) || sched_getcpu() == free);  // the scheduler may have been faster
}

TEST(a_thread_that_is_pinned_stays) {
  cpu_set_t before, one;
  CHECK_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
  CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  CoreLeaver core;
  CHECK(!core.leave(1.0));
  CHECK_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

// A wait keeps its core, until several in a row were longer than that; then only one in 256 tries.
TEST(a_core_is_kept_where_that_is_enough) {
  CoreOffer offer;
  auto keeps = [&] {
    offer.begin();
    return !offer.due(0);
  };
  for (int i = 0; i < 3; ++i) {
    CHECK(keeps());
    offer.ended(1.0);
  }
  int kept = 0;
  for (int i = 0; i < 2560; ++i) {
    kept += keeps();
    offer.ended(1.0);
  }
  CHECK_EQ(kept, 10);
  while (!keeps()) offer.ended(1e-6);
  CHECK(!offer.due(1e-6) && offer.due(1.0));
  offer.ended(1e-6);  // it was enough
  CHECK(keeps() && keeps());
}

// Whatever the start, and if they look one after the other, ranks end up with as many on each core, give or take one.
TEST(ranks_of_a_crowded_host_spread_evenly) {
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    const int cores = 1 + int(random() % 6);
    cpu_set_t mine;
    CPU_ZERO(&mine);
    for (int core = 0; core < cores; ++core) CPU_SET(static_cast<size_t>(core), &mine);
    std::vector<int> core_of(1 + random() % 16);
    for (int& core : core_of) core = int(random() % static_cast<unsigned>(cores));
    bool moved = true;
    int moves = 0;
    while (moved && moves < 64) {
      moved = false;
      for (size_t me = 0; me < core_of.size(); ++me) {
        int to = evener_core(core_of, static_cast<int>(me), mine);
        if (to < 0) continue;
        CHECK(to < cores && to != core_of[me]);
        core_of[me] = to;
        moved = true;
        ++moves;
      }
    }
    CHECK(!moved);
    auto on = [&](int core) { return std::count(core_of.begin(), core_of.end(), core); };
    for (int a = 0; a < cores; ++a)
      for (int b = 0; b < cores; ++b) CHECK(on(a) - on(b) <= 1);
  }
}

TEST(a_rank_that_may_not_go_elsewhere_or_has_not_been_seen_stays) {
  cpu_set_t first;
  CPU_ZERO(&first);
  CPU_SET(0, &first);
  CHECK_EQ(evener_core({0, 0, 0, 1}, 2, first), -1);
  cpu_set_t both = first;
  CPU_SET(1, &both);
  CHECK_EQ(evener_core({0, 0, 0, 1}, 2, both), 1);
  CHECK_EQ(evener_core({0, 0, 0, 1}, 1, both), -1);  // the last of them moves
  CHECK_EQ(evener_core({0, 0, 1, -1}, 3, both), -1);
}
