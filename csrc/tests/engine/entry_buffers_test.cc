// SPDX-License-Identifier: Apache-2.0
#include "engine/entry_buffers.h"

#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/submission.h"
#include "tests/check.h"

using hvd::Entry;

namespace {

void describe(Entry& entry, const std::string& name) {
  entry.description.name = name;
  entry.description.shape = {0, 3};
  entry.shape = {2, 3};
}

bool is_blank(const Entry& entry) {
  return entry.description.name.empty() && entry.description.shape.empty() && entry.shape.empty();
}

}  // namespace

TEST(entries_are_made_blank) {
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Entry>> all;
    std::set<const char*> names;
    for (int i = 0; i < 2000; ++i) {  // more than are kept
      all.push_back(std::make_unique<Entry>());
      CHECK(is_blank(*all.back()));
      describe(*all.back(), "a name that does not fit into the string itself " + std::to_string(i));
      names.insert(all.back()->description.name.data());
    }
    CHECK_EQ(names.size(), all.size());
    for (int i = 0; i < 2000; ++i) {
      const Entry& entry = *all[static_cast<size_t>(i)];
      CHECK_EQ(entry.description.name, "a name that does not fit into the string itself " + std::to_string(i));
      CHECK_EQ(entry.description.shape[1], int64_t{3});
      CHECK_EQ(entry.shape[0], int64_t{2});
    }
  }
}

TEST(buffers_are_used_again_unless_they_are_large) {
  if (!hvd::kReusesMemory) return;
  const void* before = nullptr;
  {
    Entry entry;
    describe(entry, std::string(100, 'a'));
    before = entry.description.name.data();
  }
  {
    Entry entry;
    CHECK_EQ(static_cast<const void*>(entry.description.name.data()), before);
    CHECK(entry.description.name.capacity() >= 100);
    describe(entry, std::string(60000, 'b'));
  }
  Entry entry;
  CHECK(entry.description.name.capacity() < 60000);
}

TEST(threads_take_what_others_gave_back) {
  auto work = [](char letter, int* faults) {
    for (int i = 0; i < 20000; ++i) {
      Entry first;
      Entry second;
      *faults += !is_blank(first) || !is_blank(second);
      describe(first, std::string(40, letter));
      describe(second, std::string(50, letter));
      *faults += first.description.name != std::string(40, letter);
      *faults += second.description.name != std::string(50, letter);
    }
  };
  int here = 0;
  int there = 0;
  std::thread other(work, 'x', &there);
  work('y', &here);
  other.join();
  CHECK_EQ(here, 0);
  CHECK_EQ(there, 0);
}
