// SPDX-License-Identifier: Apache-2.0
#include "paths/host/slot_writing.h"

#include "tests/check.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

constexpr size_t kChunk = 512 << 10;

struct Machine {
  double through, around;  // nanoseconds a byte, written and read
};
constexpr Machine kNear{0.05, 0.11};
constexpr Machine kFar{0.16, 0.04};
constexpr Machine kSlow{0.20, 0.44};  // near, and busy with something else

// One rank, which decides.
struct Rank {
  SlotWays ways{};
  SlotWriting writing;
  int steps = 0;
  Rank() { writing.follow(ways, true); }

  // Reductions of so many bytes, one after the other; each chunk is packed while the one before it is reduced. Returns
  // how many chunks went around the cache. Every third step is disturbed for so many seconds.
  int reduce(const Machine& machine, size_t bytes, int times, double disturbed = 0) {
    int around = 0;
    for (int i = 0; i < times; ++i) {
      const auto chunks = static_cast<uint32_t>((bytes + kChunk - 1) / kChunk);
      const size_t chunk = std::min(bytes, kChunk);
      writing.begin(bytes, chunks);
      for (uint32_t c = 0; c < chunks; ++c) {
        const uint32_t written = c + 1 < chunks ? c + 1 : c;
        if (written == c && chunks > 1) break;
        const bool now = writing.around(c);
        const double cost = (cost_of(machine, writing.around(written)) + cost_of(machine, now)) / 2;
        writing.took(written, c, chunk, double(chunk) * 1e-9 * cost + (++steps % 3 ? 0 : disturbed));
      }
      for (uint32_t c = 0; c < chunks; ++c) around += writing.around(c);
    }
    return around;
  }
  static double cost_of(const Machine& machine, bool around) { return around ? machine.around : machine.through; }
};

constexpr size_t kSizesTried[] = {32 << 10, 100 << 10, 512 << 10, 3 << 20, 16 << 20, size_t{100} << 20};

}  // namespace

TEST(the_faster_way_is_taken_for_each_size_and_changes_with_the_machine) {
  for (size_t bytes : kSizesTried) {
    Rank rank;
    const auto chunks = static_cast<int>((bytes + kChunk - 1) / kChunk);
    const int times = 3 * 1024 / chunks + 1;
    const Case c("bytes", bytes);
    CHECK(rank.reduce(kNear, bytes, times) <= 3072 / 16);  // trials
    rank.reduce(kFar, bytes, times);
    CHECK(rank.reduce(kFar, bytes, times) >= times * chunks - 3072 / 16);
    rank.reduce(kNear, bytes, times);
    CHECK(rank.reduce(kNear, bytes, times) <= 3072 / 16);
  }
}

// A virtual machine that is moved between two trials: a few chunks of the next collective tell.
TEST(a_way_that_becomes_slow_is_left_at_once) {
  for (size_t bytes : {size_t{16} << 20, size_t{64} << 20}) {
    const auto chunks = static_cast<int>(bytes / kChunk);
    Rank rank;
    const Case c("bytes", bytes);
    rank.reduce(kNear, bytes, 1100 / chunks);  // into the quiet after a trial
    for (int again = 0; again < 3; ++again) {
      CHECK(rank.reduce(kFar, bytes, 1) + rank.reduce(kFar, bytes, 1) >= 2 * chunks - 12);
      CHECK(rank.reduce(kNear, bytes, 1) + rank.reduce(kNear, bytes, 1) <= 12);
    }
  }
}

TEST(where_both_ways_become_slow_the_better_one_stays) {
  Rank rank;
  rank.reduce(kNear, 64 << 20, 9);
  CHECK(rank.reduce(kSlow, 64 << 20, 1) <= 10);
  CHECK_EQ(rank.reduce(kSlow, 64 << 20, 3), 0);
  CHECK_EQ(rank.reduce(kNear, 64 << 20, 2), 0);
}

TEST(the_first_verdict_comes_within_28_chunks) {
  Rank rank;
  rank.reduce(kFar, kChunk, 29);
  CHECK_EQ(rank.reduce(kFar, kChunk, 3), 3);
}

TEST(sizes_do_not_decide_for_each_other) {
  Rank rank;
  rank.reduce(kFar, 64 << 20, 8);
  rank.reduce(kNear, 128 << 10, 100);
  CHECK(rank.ways[11].load() && !rank.ways[2].load());
  CHECK(rank.reduce(kFar, 64 << 20, 8) > 900);
}

TEST(a_rank_that_loses_its_core_changes_nothing) {
  for (size_t bytes : {kChunk, size_t{16} << 20}) {
    Rank near;
    near.reduce(kNear, bytes, 2048, 4e-3);
    for (const auto& way : near.ways) CHECK(!way.load());
    Rank far;
    far.reduce(kFar, bytes, 2048, 4e-3);
    CHECK(far.ways[bytes == kChunk ? 4 : 9].load());
  }
}

// Chunks that are tried are the same on all ranks, and so is what follows from them.
TEST(others_follow_the_rank_that_decides) {
  Rank first;
  SlotWriting second;
  second.follow(first.ways, false);
  int around = 0;
  for (int i = 0; i < 2000; ++i) {
    const size_t bytes = kSizesTried[i % 4];
    second.begin(bytes, static_cast<uint32_t>((bytes + kChunk - 1) / kChunk));
    first.writing.begin(bytes, static_cast<uint32_t>((bytes + kChunk - 1) / kChunk));
    for (uint32_t c = 0; c * kChunk < bytes; ++c) {
      CHECK_EQ(second.around(c), first.writing.around(c));
      around += second.around(c);
      first.writing.took(c, c, bytes, double(bytes) * 1e-9 * Rank::cost_of(kFar, first.writing.around(c)));
      second.took(c, c, bytes, 1.0);  // nobody listens
    }
  }
  CHECK(around > 2000);
}

TEST(small_reductions_stay_in_the_cache) {
  Rank rank;
  for (auto& way : rank.ways) way = true;
  CHECK_EQ(rank.reduce(kFar, (32 << 10) - 4, 100), 0);
  CHECK(rank.reduce(kFar, 32 << 10, 10) == 10);
}
