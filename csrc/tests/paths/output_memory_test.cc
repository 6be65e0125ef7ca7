// SPDX-License-Identifier: Apache-2.0
#include "paths/output_memory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/check.h"

using namespace hvd;

namespace {

constexpr size_t kMiB = 1 << 20;

// Keeps so much during a test, and nothing after it.
struct Keeping {
  explicit Keeping(size_t bytes) { output_memory::keep(bytes); }
  ~Keeping() { output_memory::keep(0); }
};

}  // namespace

TEST(memory_of_any_size_is_aligned_and_writable) {
  Keeping keeping(64 * kMiB);
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{64}, size_t{4096}, output_memory::kLarge - 1, output_memory::kLarge,
                       output_memory::kLarge + 1, 9 * kMiB}) {
    const testing::Case c(bytes);
    for (int again = 0; again < 2; ++again) {
      void* memory = output_memory::take(bytes);
      CHECK(memory != nullptr);
      CHECK_EQ(reinterpret_cast<uintptr_t>(memory) % 64, size_t{0});
      std::memset(memory, 7, bytes);
      output_memory::give_back(memory);
    }
  }
  output_memory::give_back(nullptr);
  CHECK(output_memory::take(SIZE_MAX / 2) == nullptr);
  CHECK(output_memory::take(SIZE_MAX - 1) == nullptr);
}

TEST(large_memory_that_came_back_is_used_again) {
  Keeping keeping(64 * kMiB);
  void* first = output_memory::take(8 * kMiB);
  void* second = output_memory::take(8 * kMiB);
  CHECK(first != second);
  output_memory::give_back(first);
  CHECK(output_memory::kept() >= 8 * kMiB);
  void* third = output_memory::take(7 * kMiB);  // a little smaller will do
  CHECK(third == first);
  CHECK_EQ(output_memory::kept(), size_t{0});
  output_memory::give_back(third);
  void* small = output_memory::take(5 * kMiB);  // far smaller: it would be a waste
  CHECK(small != first);
  void* larger = output_memory::take(9 * kMiB);
  CHECK(larger != first);
  for (void* memory : {second, small, larger}) output_memory::give_back(memory);
}

TEST(no_more_is_kept_than_allowed_and_the_newest_stays) {
  Keeping keeping(20 * kMiB);
  std::vector<void*> all;
  for (int i = 0; i < 3; ++i) all.push_back(output_memory::take(9 * kMiB));
  for (void* memory : all) output_memory::give_back(memory);
  CHECK(output_memory::kept() <= 20 * kMiB);
  CHECK(output_memory::kept() >= 18 * kMiB);
  void* again = output_memory::take(9 * kMiB);
  CHECK(again == all[1] || again == all[2]);
  void* huge = output_memory::take(30 * kMiB);
  output_memory::give_back(huge);  // more than may be kept at all
  CHECK(output_memory::kept() <= 20 * kMiB);
  output_memory::keep(0);
  CHECK_EQ(output_memory::kept(), size_t{0});
  output_memory::give_back(again);  // after the end: goes back to the system
  CHECK_EQ(output_memory::kept(), size_t{0});
}

TEST(threads_never_share_a_block) {
  Keeping keeping(256 * kMiB);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&wrong, t] {
      for (int i = 0; i < 200; ++i) {
        size_t bytes = (4 + static_cast<size_t>(i) % 3) * kMiB;
        auto* memory = static_cast<char*>(output_memory::take(bytes));
        for (size_t at = 0; at < bytes; at += kMiB) memory[at] = static_cast<char>(t);
        memory[bytes - 1] = static_cast<char>(t);
        std::this_thread::yield();
        for (size_t at = 0; at < bytes; at += kMiB) wrong += memory[at] != static_cast<char>(t);
        wrong += memory[bytes - 1] != static_cast<char>(t);
        output_memory::give_back(memory);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0);
}

TEST(a_child_has_memory_of_its_own) {
  Keeping keeping(64 * kMiB);
  auto* mine = static_cast<char*>(output_memory::take(8 * kMiB));
  std::memset(mine, 1, 8 * kMiB);
  output_memory::give_back(output_memory::take(6 * kMiB));
  output_memory::before_fork();
  pid_t child = fork();
  output_memory::after_fork();
  if (child == 0) {
    std::memset(mine, 2, 8 * kMiB);
    output_memory::give_back(mine);
    void* other = output_memory::take(6 * kMiB);
    output_memory::give_back(other);
    _exit(other ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK_EQ(status, 0);
  for (size_t at = 0; at < 8 * kMiB; at += 4096) CHECK_EQ(int{mine[at]}, 1);
  output_memory::give_back(mine);
}
