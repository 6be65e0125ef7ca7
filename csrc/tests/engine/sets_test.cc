// SPDX-License-Identifier: Apache-2.0
//
// Process sets that come and go while other threads submit to them: each submission is refused or ends once, and
// nothing is used after it is gone. Run under the thread and address sanitizers.
#include <atomic>

#include "tests/check.h"
#include "tests/engine/gradient.h"
#include "tests/engine/job.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

hvd_request in_set(Gradient& t, int32_t set) {
  hvd_request r = t.request();
  r.process_set = set;
  return r;
}

}  // namespace

// Every rank adds and removes a set of one rank, while two threads of that rank submit to it all the time.
TEST(a_set_is_removed_while_threads_submit_to_it) {
  for (const auto& locals : {std::vector<int>{1}, {2}, {1, 1}}) {
    Job job(locals);
    if (job.size() == 1) continue;  // the set of everybody exists already
    const Case c("hosts", locals.size(), "ranks", job.size());
    std::atomic<int32_t> current{-1};
    std::atomic<bool> over{false};
    std::atomic<long> faults{0}, done{0}, refused{0}, removed_under{0};
    job.each([&](int rank) {
      Engine& engine = job.engine(rank);
      std::vector<std::thread> threads;
      for (int thread = 0; rank == 0 && thread < 2; ++thread)
        threads.emplace_back([&, thread] {
          while (!over) {
            const int32_t set = current;
            if (set < 0) continue;
            Gradient t("x" + std::to_string(thread), 100, 1.f);
            const hvd_request r = in_set(t, set);
            int64_t handle;
            try {
              handle = engine.submit(&r, 1, 0, nullptr, nullptr, nullptr);
            } catch (const Refused& error) {
              faults += error.code != HVD_INVALID;
              ++refused;
              continue;
            }
            engine.poll(handle);
            const Status status = engine.wait(handle, 30);
            if (status.ok()) {
              ++done;
              faults += !t.all(1.f);
            } else {
              ++removed_under;
              faults += status.code != HVD_INVALID || status.text.find("was removed while") == std::string::npos;
            }
            engine.release(handle);
          }
        });
      for (int round = 0; round < 60; ++round) {
        const int32_t set = engine.add_process_set({0});
        if (rank == 0) {
          const long before = done;
          current = set;
          while (done == before) std::this_thread::yield();  // it is in use
        }
        engine.remove_process_set(set);
        faults += !engine.process_set_ranks(set).empty();
      }
      if (rank == 0) over = true;
      for (std::thread& t : threads) t.join();
    });
    CHECK_EQ(faults.load(), 0L);
    CHECK(done >= 60);
    CHECK(refused + removed_under > 0);
  }
}

// A submission that was checked against a set which has gone, and whose id another set has meanwhile, is refused.
TEST(a_set_of_the_same_id_is_not_the_same_set) {
  Job job({3});
  std::atomic<long> faults{0};
  job.each([&](int rank) {
    Engine& engine = job.engine(rank);
    const int32_t first = engine.add_process_set({0, 1});
    engine.remove_process_set(first);
    const int32_t second = engine.add_process_set({1, 2});
    faults += first != second;  // the number is used again
    faults += engine.process_set_ranks(second) != std::vector<int>{1, 2};
    Gradient t("x", 10, 1.f);
    const hvd_request r = in_set(t, second);
    try {
      const int64_t handle = engine.submit(&r, 1, 0, nullptr, nullptr, nullptr);
      faults += rank == 0 || !engine.wait(handle, 30).ok() || !t.all(2.f);
      engine.release(handle);
    } catch (const Refused& refused) {
      faults += rank != 0 || refused.code != HVD_INVALID;
    }
  });
  CHECK_EQ(faults.load(), 0L);
}

// Handles under the hands of two threads: one waits, the other polls, asks for the result and lets go.
TEST(handles_are_polled_waited_for_and_released_by_two_threads) {
  for (const auto& locals : {std::vector<int>{1}, {2}, {1, 1}}) {
    Job job(locals);
    const Case c("hosts", locals.size(), "ranks", job.size());
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      Engine& engine = job.engine(rank);
      for (int round = 0; round < 200; ++round) {
        auto t = std::make_shared<Gradient>("x" + std::to_string(round % 3), 50, 1.f);
        const hvd_request r = t->request();
        const int64_t handle = engine.submit(&r, 1, round % 2 ? HVD_WILL_WAIT : 0, nullptr, nullptr, nullptr);
        std::thread other([&, handle] {
          try {
            for (int i = 0; i < 3; ++i) engine.poll(handle);
          } catch (const Refused&) {  // released meanwhile
          }
          if (auto submission = engine.find(handle)) submission->done.load();
        });
        const Status status = engine.wait(handle, 30);
        engine.release(handle);
        faults += !status.ok() || !t->all(float(job.size()));
        other.join();
        engine.release(handle);  // again: harmless
        faults += engine.wait(handle, 0).code != HVD_INVALID;
      }
    });
    CHECK_EQ(faults.load(), 0L);
  }
}

// Released before they are done: they go on, and are gone afterwards.
TEST(handles_released_early_still_run) {
  Job job({2});
  std::atomic<long> faults{0};
  job.each([&](int rank) {
    Engine& engine = job.engine(rank);
    std::vector<Gradient> tensors;
    for (int i = 0; i < 50; ++i) tensors.emplace_back("t" + std::to_string(i), 10, 1.f);
    std::vector<int64_t> handles;
    for (Gradient& t : tensors) {
      const hvd_request r = t.request();
      handles.push_back(engine.submit(&r, 1, 0, nullptr, nullptr, nullptr));
      engine.release(handles.back());
    }
    Gradient last("last", 1, 1.f);
    const hvd_request r = last.request();
    const int64_t handle = engine.submit(&r, 1, HVD_WILL_WAIT, nullptr, nullptr, nullptr);
    faults += !engine.wait(handle, 30).ok();
    for (size_t i = 0; i < tensors.size(); ++i) {
      while (engine.find(handles[i])) std::this_thread::yield();
      faults += !tensors[i].all(2.f);
    }
  });
  CHECK_EQ(faults.load(), 0L);
}
