// SPDX-License-Identifier: Apache-2.0
//
// Places on a GPU: claimed once, by threads and processes, free again however their holder ends.
#include "paths/cuda/room.h"

#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "tests/check.h"

using namespace hvd::cuda;

namespace {

struct Folder {
  Folder() : path(mkdtemp(name)) {}
  ~Folder() { std::filesystem::remove_all(path); }
  char name[32] = "/tmp/hvd-room-XXXXXX";
  std::string path;
  bool empty() const { return std::filesystem::is_empty(path); }
};

const Uuid kGpu{{'a', 'b'}};

}  // namespace

TEST(places_are_claimed_once) {
  const Folder folder;
  auto first = std::make_unique<Room>(kGpu, folder.path);
  Room second(kGpu, folder.path);
  CHECK_EQ(first->claim(6, 8), 6);
  CHECK_EQ(second.claim(6, 8), 2);
  CHECK_EQ(second.claim(1, 8), 2);  // what it has is enough
  CHECK_EQ(first->claim(8, 8), 6);
  Room other(Uuid{{'b'}}, folder.path);
  CHECK_EQ(other.claim(6, 8), 6);
  first.reset();
  CHECK_EQ(second.claim(6, 8), 6);
  Room third(kGpu, folder.path);
  CHECK_EQ(third.claim(4, 8), 2);
}

TEST(a_file_that_nobody_needs_goes) {
  const Folder folder;
  Room waiting(kGpu, folder.path);
  {
    Room first(kGpu, folder.path);
    CHECK_EQ(first.claim(8, 8), 8);
    CHECK_EQ(waiting.claim(1, 8), 0);
    CHECK(!folder.empty());
  }
  CHECK(folder.empty());
  CHECK_EQ(waiting.claim(3, 8), 3);  // in a file that is new
  Room last(kGpu, folder.path);
  CHECK_EQ(last.claim(8, 8), 5);
}

TEST(a_killed_process_leaves_its_places) {
  const Folder folder;
  int ready[2];
  CHECK_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    Room room(kGpu, folder.path);
    const char claimed = char(room.claim(7, 8));
    if (write(ready[1], &claimed, 1) == 1) pause();
    _exit(1);
  }
  char claimed = 0;
  CHECK_EQ(read(ready[0], &claimed, 1), ssize_t(1));
  CHECK_EQ(int(claimed), 7);
  Room room(kGpu, folder.path);
  CHECK_EQ(room.claim(8, 8), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK_EQ(room.claim(8, 8), 8);
  close(ready[0]);
  close(ready[1]);
}

TEST(without_a_file_nobody_counts) {
  Room room(kGpu, "/nowhere");
  CHECK_EQ(room.claim(6, 8), 6);
}
