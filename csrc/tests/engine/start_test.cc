// SPDX-License-Identifier: Apache-2.0
//
// hvd_start and hvd_attach_links own the descriptors they are given, whatever they answer: the other ends see them
// close.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "horovod/core.h"
#include "tests/check.h"
#include "tests/describe_world.h"

using namespace hvd::testing;

namespace {

// What a bootstrap would have opened for rank 0 of two hosts with two ranks here, and the far ends of it.
struct Opened {
  std::vector<int> host_of{0, 0, 1};
  std::vector<std::string> host_names{"a", "b"};
  std::vector<const char*> names;
  std::vector<int32_t> bells;
  std::vector<hvd_link> links;
  std::vector<int> far_ends;
  hvd_world world;

  Opened() : world(describe_world(0, host_of, host_names, &names)) {
    for (int i = 0; i < 2; ++i) bells.push_back(hvd_doorbell_create());
    world.doorbell_fds = bells.data();
    world.shm_fd = hvd_shm_create(2);
    const int32_t everyone[] = {0, 1, 2};
    links.resize(16);
    links.resize(size_t(hvd_plan_links(&world, everyone, 3, 0, links.data(), 16)));
    for (hvd_link& link : links) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) std::abort();
      link.fd = pair[0];
      std::memset(link.key, 1, sizeof link.key);
      far_ends.push_back(pair[1]);
    }
  }
  ~Opened() {
    for (int fd : far_ends) close(fd);
  }

  int32_t start() { return hvd_start(&world, links.data(), int32_t(links.size())); }
  // Whether every descriptor is closed now.
  bool all_closed() {
    bool closed = fcntl(world.shm_fd, F_GETFD) < 0;
    for (int32_t fd : bells) closed &= fcntl(fd, F_GETFD) < 0;
    for (int fd : far_ends) {
      char byte;
      closed &= recv(fd, &byte, 1, 0) == 0;
    }
    return closed;
  }
};

bool says(const char* text) { return std::string(hvd_last_error()).find(text) != std::string::npos; }

}  // namespace

TEST(a_start_that_fails_closes_everything) {
  {
    Opened o;
    for (hvd_link& link : o.links)
      if (link.kind == HVD_LINK_CONTROL) link.kind = HVD_LINK_WATCH;
    CHECK_EQ(o.start(), int(HVD_INVALID));
    CHECK(says("the control link to rank 2 on b is missing"));
    CHECK(o.all_closed());
  }
  {
    Opened o;
    for (hvd_link& link : o.links) std::memset(link.key, 0, sizeof link.key);
    CHECK_EQ(o.start(), int(HVD_INVALID));
    CHECK(says("rank 2 on b came without a key"));
    CHECK(o.all_closed());
  }
  {
    Opened o;
    close(o.world.shm_fd);
    o.world.shm_fd = eventfd(0, EFD_CLOEXEC);
    CHECK_EQ(o.start(), int(HVD_INVALID));
    CHECK(says("not this job's"));
    CHECK(o.all_closed());
  }
  {
    Opened o;
    o.host_of[2] = 7;
    CHECK_EQ(o.start(), int(HVD_INVALID));
    CHECK(says("rank 2 is on host 7"));
    CHECK(o.all_closed());
  }
  {
    Opened o;
    CHECK_EQ(hvd_configure("cpu_operations", "mpi"), int(HVD_OK));
    CHECK_EQ(hvd_configure("link_security", "integrity"), int(HVD_OK));
    CHECK_EQ(o.start(), int(HVD_INVALID));
    CHECK(says("HOROVOD_CPU_OPERATIONS=mpi") && says("HOROVOD_LINK_SECURITY=integrity"));
    CHECK(o.all_closed());
    CHECK_EQ(hvd_configure("cpu_operations", ""), int(HVD_OK));
    CHECK_EQ(hvd_configure("link_security", "control"), int(HVD_OK));
  }
  CHECK_EQ(hvd_is_running(), 0);
}

TEST(a_second_start_and_links_that_nobody_needs_are_closed_too) {
  const std::vector<int> host_of{0};
  const std::vector<std::string> host_names{"a"};
  std::vector<const char*> names;
  const hvd_world alone = describe_world(0, host_of, host_names, &names);
  {
    Opened o;  // no engine yet
    CHECK_EQ(hvd_attach_links(o.links.data(), int32_t(o.links.size())), int(HVD_PRECONDITION));
    for (int fd : o.far_ends) {
      char byte;
      CHECK_EQ(recv(fd, &byte, 1, 0), ssize_t(0));
    }
  }
  CHECK_EQ(hvd_start(&alone, nullptr, 0), int(HVD_OK));
  {
    Opened o;
    CHECK_EQ(o.start(), int(HVD_INVALID));
    CHECK(says("running already"));
    CHECK(o.all_closed());
  }
  {
    Opened o;
    CHECK_EQ(hvd_attach_links(o.links.data(), int32_t(o.links.size())), int(HVD_OK));
    for (int fd : o.far_ends) {
      char byte;
      CHECK_EQ(recv(fd, &byte, 1, 0), ssize_t(0));
    }
  }
  CHECK_EQ(hvd_rank(), 0);
  CHECK_EQ(hvd_stop("done"), int(HVD_OK));
}

TEST(staging_slots_too_small_for_the_job_are_refused_at_start) {
  CHECK_EQ(hvd_configure("shm_slot_bytes", "16384"), int(HVD_OK));
  std::vector<int> host_of(300);  // 64 bytes for each of them do not fit into 16 KiB
  host_of.back() = 1;
  const std::vector<std::string> host_names{"a", "b"};
  std::vector<const char*> names;
  hvd_world world = describe_world(299, host_of, host_names, &names);
  int pairs[2][2];
  hvd_link links[2]{};
  for (int i : {0, 1}) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]) != 0) std::abort();
    links[i].kind = i ? HVD_LINK_QUICK : HVD_LINK_CONTROL;
    links[i].fd = pairs[i][0];
    links[i].key[0] = 1;
  }
  CHECK_EQ(hvd_start(&world, links, 2), int(HVD_INVALID));
  CHECK(says("HOROVOD_SHM_SLOT_BYTES is too small for 300 ranks: it must be at least"));
  for (int i : {0, 1}) close(pairs[i][1]);
  CHECK_EQ(hvd_configure("shm_slot_bytes", "1048576"), int(HVD_OK));
}
