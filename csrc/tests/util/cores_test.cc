// SPDX-License-Identifier: Apache-2.0
#include "util/cores.h"

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
