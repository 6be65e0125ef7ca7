// SPDX-License-Identifier: Apache-2.0
//
// Rounds of ranks that come, wait, give up and go another way as chance has it: for every call either all of them find
// its round full, with what everybody brought to this very call, or none does.
#include "host/quick_round.h"

#include <sched.h>

#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/check.h"
#include "tests/other_way.h"
#include "util/clock.h"

using namespace hvd;

namespace {

using Outcome = QuickRound::Outcome;
using hvd::testing::OtherWay;

struct Note {
  int rank, call;
};

bool wait_until_full(QuickRound& round, double seconds) {
  const double end = now_s() + seconds;
  for (;;) {
    if (Outcome outcome = round.look(); outcome != Outcome::kOpen) return outcome == Outcome::kFull;
    if (now_s() > end)
      if (Outcome outcome = round.close(); outcome != Outcome::kOpen) return outcome == Outcome::kFull;
    sched_yield();
  }
}

struct Chances {
  double other_way;     // of a call that does not even try
  double patience;      // seconds, at most
  uint32_t ids;         // tensors, called in the same order by all
  double wrong_tensor;  // of a rank that comes with another id
};

long run(int ranks, int calls, const Chances& chances, int* went_other_way) {
  Segment segment(UniqueFd(), ranks, 16 << 10);
  OtherWay other_way(ranks);
  std::atomic<long> faults{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      QuickRound round(segment, rank, ranks);
      std::mt19937 random(static_cast<unsigned>(rank + 1));
      auto chance = [&] { return std::uniform_real_distribution<double>(0, 1)(random); };
      for (int call = 0; call < calls && !faults; ++call) {
        uint32_t id = 1 + static_cast<uint32_t>(call) % chances.ids;
        if (chance() < chances.wrong_tensor) id = 1000 + static_cast<uint32_t>(rank);
        const Note mine{rank, call};
        bool full = chance() >= chances.other_way &&
                    round.arrive(id, [&](char* room) { std::memcpy(room, &mine, sizeof mine); });
        if (full) {
          full = wait_until_full(round, chances.patience * chance());
          for (int r = 0; r < ranks && full; ++r) {
            Note note{};
            std::memcpy(&note, round.payload(r), sizeof note);
            if (note.rank != r || note.call != call) ++faults;
          }
          round.leave();
        }
        if (full) continue;
        round.close_for_others();
        if (!other_way.meet(call, [] {})) ++faults;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  *went_other_way = other_way.calls();
  return faults;
}

}  // namespace

TEST(all_or_none) {
  const Chances grid[] = {
      {0, 1e-4, 1, 0},      // impatient
      {0.05, 1e-3, 3, 0},   // now and then one goes another way
      {0.3, 1e-5, 1, 0},    // often
      {0.05, 1e-4, 2, 0.1}  // and comes with the wrong tensor
  };
  for (const Chances& chances : grid) {
    for (int ranks : {2, 3, 5}) {
      int other = 0;
      const hvd::testing::Case c("ranks", ranks, "other way", chances.other_way, "patience", chances.patience);
      CHECK_EQ(run(ranks, 500, chances, &other), 0L);
      if (chances.other_way > 0) CHECK(other > 0);
    }
  }
}

TEST(patient_ranks_always_meet) {
  int other = 0;
  CHECK_EQ(run(3, 500, {0, 1e6, 4, 0}, &other), 0L);
  CHECK_EQ(other, 0);
}

// Whoever sleeps in a round is woken by whoever ends it, by coming last or by closing it.
TEST(sleepers_are_woken) {
  constexpr double kTooLong = 30;
  for (const bool closes : {false, true}) {
    Segment segment(UniqueFd(), 2, 16 << 10);
    QuickRound sleeper(segment, 0, 2);
    QuickRound other(segment, 1, 2);
    auto nothing = [](char*) {};
    bool good = true;
    for (int call = 0; call < 200 && good; ++call) {
      good = sleeper.arrive(1, nothing);
      bool woken = false;
      std::thread sleeps([&] {
        const double since = now_s();
        while (sleeper.look() == Outcome::kOpen) sleeper.sleep(kTooLong);
        woken = now_s() - since < kTooLong && sleeper.look() == (closes ? Outcome::kClosed : Outcome::kFull);
        sleeper.leave();
      });
      while (call % 2 && segment.header().quick_sleepers == 0) sched_yield();  // else it may still be lying down
      if (closes) other.close_for_others();
      good = good && other.arrive(1, nothing) != closes;
      other.wake();
      sleeps.join();
      other.leave();
      good = good && woken;
    }
    const hvd::testing::Case c("closes", closes);
    CHECK(good);
  }
}

// More rounds than the word counts.
TEST(numbers_of_rounds_come_again) {
  Segment segment(UniqueFd(), 2, 16 << 10);
  QuickRound one(segment, 0, 2);
  QuickRound two(segment, 1, 2);
  auto nothing = [](char*) {};
  bool good = true;
  for (int call = 0; call < 70000; ++call) {
    good = good && one.arrive(1, nothing) && one.look() == Outcome::kOpen;
    bool closed = call % 7 == 0;
    if (closed) good = good && one.close() == Outcome::kClosed && !two.arrive(1, nothing);
    else good = good && two.arrive(1, nothing) && one.look() == Outcome::kFull && two.look() == Outcome::kFull;
    one.leave();
    two.leave();
  }
  CHECK(good);
}

// A rank that was told nothing yet keeps the others from closing what would overwrite how its round ended.
TEST(a_slow_rank_learns_how_its_round_ended) {
  Segment segment(UniqueFd(), 2, 16 << 10);
  QuickRound slow(segment, 0, 2);
  QuickRound quick(segment, 1, 2);
  auto nothing = [](char*) {};
  CHECK(slow.arrive(7, nothing));
  CHECK(quick.arrive(7, nothing));
  CHECK(quick.look() == Outcome::kFull);
  quick.leave();
  CHECK(quick.arrive(8, nothing));
  CHECK(quick.close() == Outcome::kOpen);  // slow has not looked
  CHECK(slow.look() == Outcome::kFull);
  slow.leave();
  CHECK(quick.close() == Outcome::kClosed);
  quick.leave();
  CHECK(!slow.arrive(8, nothing));  // it was given up
  CHECK(slow.arrive(8, nothing));   // this is the next call of the same
  CHECK(quick.arrive(8, nothing));
  CHECK(slow.look() == Outcome::kFull && quick.look() == Outcome::kFull);
}
