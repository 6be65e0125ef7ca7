// SPDX-License-Identifier: Apache-2.0
//
// Ranks that join while tensors of theirs are still under way.
#include <atomic>

#include "tests/check.h"
#include "tests/engine/gradient.h"
#include "tests/engine/job.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

hvd_request join() { return bare_request(HVD_JOIN, "join.noname"); }

int64_t submit(Engine& engine, const hvd_request& r, uint32_t flags = 0) {
  return engine.submit(&r, 1, flags, nullptr, nullptr, nullptr);
}

bool finish(Engine& engine, int64_t handle) {
  const Status status = engine.wait(handle, 20);
  engine.release(handle);
  return status.ok();
}

// Until this rank has told the others of so many tensors that are not done.
void await_announced(const Engine& engine, int tensors) {
  for (;;) {
    const std::string recent = engine.recent();
    int found = 0;
    for (size_t at = 0; (at = recent.find("\"announced\"", at)) != std::string::npos; ++at) ++found;
    if (found >= tensors) return;
    usleep(500);
  }
}

}  // namespace

// What a rank was ready for before it joined counts once: the next tensor of that name waits for it again.
TEST(a_tensor_announced_together_with_a_join_counts_once) {
  for (const auto& locals : {std::vector<int>{2}, {1, 1}, {1, 2}}) {
    Job job(locals);
    const Case c("hosts", locals.size(), "ranks", job.size());
    const int last = job.size() - 1;
    std::vector<std::thread> joining;
    std::atomic<long> faults{0};

    for (int rank = 0; rank <= last; ++rank) {
      // Both are said in one breath, by the thread that waits.
      joining.emplace_back([&, rank] {
        Gradient t("t", 8, 1.f);
        const int64_t tensor = submit(job.engine(rank), t.request(), HVD_WILL_WAIT);
        faults += !finish(job.engine(rank), submit(job.engine(rank), join(), HVD_WILL_WAIT));
        faults += !finish(job.engine(rank), tensor);
        faults += !t.all(float(job.size()));
      });
      if (rank < last) await_announced(job.engine(rank), 2);
    }
    for (std::thread& thread : joining) thread.join();
    CHECK_EQ(faults.load(), 0L);

    // Everybody but the last is ready for t; what all are ready for comes later, and is done before it.
    std::vector<Gradient> again, fence;
    std::vector<int64_t> waiting;
    for (int rank = 0; rank <= last; ++rank) {
      again.emplace_back("t", 8, 1.f);
      fence.emplace_back("fence", 8, 1.f);
    }
    for (int rank = 0; rank < last; ++rank) {
      waiting.push_back(submit(job.engine(rank), again[size_t(rank)].request()));
      await_announced(job.engine(rank), 1);
    }
    job.each([&](int rank) {
      faults += !finish(job.engine(rank), submit(job.engine(rank), fence[size_t(rank)].request()));
    });
    for (int rank = 0; rank < last; ++rank) CHECK_EQ(job.engine(rank).poll(waiting[size_t(rank)]), 0);
    waiting.push_back(submit(job.engine(last), again[size_t(last)].request()));
    job.each([&](int rank) {
      faults += !finish(job.engine(rank), waiting[size_t(rank)]);
      faults += !again[size_t(rank)].all(float(job.size()));
    });
    CHECK_EQ(faults.load(), 0L);
  }
}
