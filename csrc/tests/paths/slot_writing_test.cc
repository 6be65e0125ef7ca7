// SPDX-License-Identifier: Apache-2.0
#include "paths/host/slot_writing.h"

#include "tests/check.h"

using namespace hvd;

namespace {

constexpr size_t kChunk = 256 << 10;

struct Machine {
  double through, around;  // nanoseconds a byte
};
constexpr Machine kNear{0.05, 0.11};
constexpr Machine kFar{0.42, 0.12};

// So many chunks; returns how many went around the cache.
int write(SlotWriting& writing, const Machine& machine, int chunks) {
  int around = 0;
  for (int i = 0; i < chunks; ++i) {
    const bool now = writing.around(kChunk);
    around += now;
    writing.took(kChunk, double(kChunk) * 1e-9 * (now ? machine.around : machine.through));
  }
  return around;
}

}  // namespace

TEST(the_faster_way_is_taken_and_changes_with_the_machine) {
  SlotWriting writing;
  CHECK(write(writing, kNear, 640) <= 10);
  CHECK(!writing.around());
  write(writing, kFar, 64);
  CHECK(writing.around());
  CHECK(write(writing, kFar, 640) >= 630);
  write(writing, kNear, 64);
  CHECK(!writing.around());
}

TEST(a_disturbed_chunk_changes_nothing) {
  SlotWriting writing;
  write(writing, kNear, 128);
  writing.took(kChunk, 4e-3);  // somebody else had the core
  CHECK(write(writing, kNear, 128) <= 2);
  CHECK(!writing.around());
  write(writing, kFar, 128);
  writing.took(kChunk, 4e-3);
  CHECK(writing.around());
}

// Chunks that may be written along with other work are; returns how many were written by themselves.
int write_along(SlotWriting& writing, const Machine& machine, int chunks) {
  int by_itself = 0;
  for (int i = 0; i < chunks; ++i) {
    if (writing.by_itself(kChunk)) {
      ++by_itself;
      write(writing, machine, 1);
    } else {
      CHECK(!writing.around(kChunk));
      writing.passed();
    }
  }
  return by_itself;
}

TEST(chunks_written_along_with_other_work_leave_enough_to_be_timed) {
  SlotWriting writing;
  CHECK_EQ(write_along(writing, kNear, 640), 20);
  CHECK(!writing.around());
  write_along(writing, kFar, 256);
  CHECK(writing.around());
  CHECK_EQ(write_along(writing, kFar, 640), 640);
  write_along(writing, kNear, 128);
  CHECK(!writing.around());
}

TEST(a_disturbed_chunk_among_those_written_along_changes_nothing) {
  SlotWriting writing;
  write_along(writing, kNear, 640 - 2);
  CHECK(writing.by_itself(kChunk));
  writing.took(kChunk, 4e-3);
  write_along(writing, kNear, 1);
  CHECK(!writing.around());
}

TEST(small_chunks_stay_in_the_cache_and_are_not_timed) {
  SlotWriting writing;
  write(writing, kFar, 64);
  CHECK(writing.around());
  CHECK(!writing.around(4096));
  writing.took(4096, 1.0);
  CHECK(writing.around());
}
