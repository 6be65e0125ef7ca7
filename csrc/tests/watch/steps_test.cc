// SPDX-License-Identifier: Apache-2.0
#include "watch/steps.h"

#include "horovod/core.h"
#include "tests/check.h"

using namespace hvd;

namespace {

Description tensor(const char* name, int32_t kind = HVD_ALLREDUCE, int32_t process_set = 0) {
  Description made;
  made.name = name;
  made.kind = kind;
  made.process_set = process_set;
  return made;
}

struct Watched {
  Metrics metrics;
  Timeline timeline{{0, 1, "here"}};
  Steps steps{metrics, timeline};

  // Two gradients that end at these times, the second one last.
  void round(double at) {
    for (const char* name : {"a", "b"}) {
      steps.begins(tensor(name), 1000, at);
      steps.moved(at + 0.25);
      at += 0.5;
    }
  }
};

}  // namespace

TEST(a_step_ends_with_what_moved_before_a_tensor_came_back) {
  Watched job;
  for (int i = 1; i <= 4; ++i) job.round(10.0 * i);
  CHECK_EQ(job.metrics.steps.load(), int64_t(3));  // that the fourth is over, nobody can know yet
  CHECK_EQ(job.metrics.step_us.load(), int64_t(20000000));
  CHECK_EQ(job.metrics.last_step_us.load(), int64_t(10000000));
}

TEST(only_what_all_ranks_reduce_or_gather_makes_steps) {
  Watched job;
  for (int i = 1; i <= 5; ++i) {
    job.steps.begins(tensor("a", HVD_BROADCAST), 1000, i);
    job.steps.begins(tensor("b", HVD_BARRIER), 0, i);
    job.steps.begins(tensor("c", HVD_ALLREDUCE, 3), 1000, i);
  }
  CHECK_EQ(job.metrics.steps.load(), int64_t(0));
}

// Counters only grow, for those who watch them.
TEST(the_first_mark_ends_inferring_and_the_count_goes_on) {
  Watched job;
  for (int i = 1; i <= 4; ++i) job.round(10.0 * i);
  CHECK_EQ(job.metrics.steps.load(), int64_t(3));
  job.steps.mark();
  CHECK_EQ(job.metrics.steps.load(), int64_t(4));
  for (int i = 5; i <= 8; ++i) job.round(10.0 * i);
  CHECK_EQ(job.metrics.steps.load(), int64_t(4));
  job.steps.mark();
  CHECK_EQ(job.metrics.steps.load(), int64_t(5));
}
