// SPDX-License-Identifier: Apache-2.0
//
// Whole engines against each other: threads that submit and wait at the same time, callbacks, errors, shutdown.
#include <algorithm>
#include <atomic>
#include <random>

#include "tests/check.h"
#include "tests/engine/gradient.h"
#include "tests/engine/job.h"
#include "util/clock.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

std::vector<std::vector<int>> jobs() { return {{1}, {2}, {3}, {1, 1}, {2, 1}}; }

int status_of(Engine& engine, int64_t handle) {
  const Status status = engine.wait(handle, 30.0);
  engine.release(handle);
  return status.code;
}

}  // namespace

TEST(blocking_calls_in_a_row) {
  for (const auto& locals : jobs()) {
    Job job(locals);
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      for (int i = 0; i < 50; ++i) {
        Gradient t("t" + std::to_string(i % 5), size_t(1) << (i % 17), float(rank + 1));
        const hvd_request r = t.request();
        const int64_t handle = job.engine(rank).submit(&r, 1, HVD_WILL_WAIT, nullptr, nullptr, nullptr);
        faults += status_of(job.engine(rank), handle) != HVD_OK;
        faults += !t.all(float(job.size() * (job.size() + 1)) / 2);
      }
    });
    const Case c("hosts", locals.size(), "ranks", job.size());
    CHECK_EQ(faults.load(), 0L);
  }
}

// Threads of one rank submit at the same time, in different orders on every rank; some wait, one polls.
TEST(many_threads_submit_at_once) {
  for (const auto& locals : jobs()) {
    Job job(locals);
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      std::vector<std::thread> threads;
      for (int thread = 0; thread < 3; ++thread) {
        threads.emplace_back([&, thread] {
          Engine& engine = job.engine(rank);
          for (int round = 0; round < 5; ++round) {
            std::vector<Gradient> tensors;
            for (int i = 0; i < 8; ++i) {
              tensors.emplace_back("t" + std::to_string(thread) + "." + std::to_string(i), size_t(100 * i + 1), 1.f);
            }
            std::vector<int64_t> handles(tensors.size());
            for (size_t k = 0; k < tensors.size(); ++k) {
              const size_t i = (k + size_t(rank) * 3) % tensors.size();
              const hvd_request r = tensors[i].request();
              handles[i] = engine.submit(&r, 1, 0, nullptr, nullptr, nullptr);
            }
            for (size_t i = 0; i < tensors.size(); ++i) {
              while (thread == 2 && engine.poll(handles[i]) == 0) std::this_thread::yield();
              faults += status_of(engine, handles[i]) != HVD_OK;
              faults += !tensors[i].all(float(job.size()));
            }
          }
        });
      }
      for (std::thread& t : threads) t.join();
    });
    const Case c("hosts", locals.size(), "ranks", job.size());
    CHECK_EQ(faults.load(), 0L);
  }
}

// Who submits and neither waits nor looks gets his results all the same, though only the first of many tensors rings.
// What was forgotten is found when the engine looks whether all is well: that may be late, but not in most rounds. On a
// busy machine there are fewer of them.
TEST(what_nobody_waits_for_is_done_by_itself) {
  for (const auto& locals : jobs()) {
    Job job(locals);
    std::atomic<long> faults{0};
    std::atomic<int> rounds{200}, late{0};
    const double enough = now_s() + 20;
    job.each([&](int rank) {
      Engine& engine = job.engine(rank);
      std::minstd_rand random(unsigned(rank) + 1);
      for (int round = 0; round < rounds; ++round) {
        // Nobody is further than in this one, and nobody ends it without this rank.
        if (rank == 0 && now_s() > enough) rounds = round + 1;
        const double since = now_s();
        std::vector<Gradient> tensors;
        for (int i = 0; i < 6; ++i) tensors.emplace_back("t" + std::to_string(i), size_t(100 * i + 1), 1.f);
        std::vector<int64_t> handles;
        for (Gradient& tensor : tensors) {
          const hvd_request r = tensor.request();
          handles.push_back(engine.submit(&r, 1, 0, nullptr, nullptr, nullptr));
          usleep(unsigned(random() % 4) * unsigned(random() % 200));  // within a nap, at its end, after it
        }
        for (size_t i = 0; i < tensors.size(); ++i) {
          const auto submission = engine.find(handles[i]);
          while (!submission->done) usleep(20);
          faults += !tensors[i].all(float(job.size()));
          engine.release(handles[i]);
        }
        if (rank == 0) late += now_s() - since > 0.3;
      }
    });
    const Case c("hosts", locals.size(), "ranks", job.size());
    CHECK_EQ(faults.load(), 0L);
    CHECK(late < std::max(rounds / 2, 1));
  }
}

TEST(callbacks_come_once_with_the_result) {
  struct Seen {
    std::atomic<int> calls{0}, failures{0};
  };
  for (const auto& locals : jobs()) {
    Job job(locals);
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      Seen seen;
      std::vector<Gradient> tensors;
      for (int i = 0; i < 20; ++i) tensors.emplace_back("c" + std::to_string(i), 10, 2.f);
      const auto done = [](void* context, int64_t, int32_t status, const char*) {
        static_cast<Seen*>(context)->failures += status != HVD_OK;
        ++static_cast<Seen*>(context)->calls;
      };
      for (Gradient& t : tensors) {
        const hvd_request r = t.request();
        job.engine(rank).submit(&r, 1, HVD_AUTO_RELEASE, nullptr, done, &seen);
      }
      while (seen.calls < 20) std::this_thread::yield();
      faults += seen.failures;
      for (const Gradient& t : tensors) faults += !t.all(2.f * float(job.size()));
    });
    const Case c("hosts", locals.size(), "ranks", job.size());
    CHECK_EQ(faults.load(), 0L);
  }
}

TEST(a_mismatch_fails_everywhere_and_the_job_goes_on) {
  for (const auto& locals : jobs()) {
    if (locals == std::vector<int>{1}) continue;
    Job job(locals);
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      for (int round = 0; round < 3; ++round) {
        Gradient wrong("wrong", rank == 1 ? 5 : 6, 1.f), right("right", 6, 1.f);
        const hvd_request a = wrong.request(), b = right.request();
        const int64_t first = job.engine(rank).submit(&a, 1, 0, nullptr, nullptr, nullptr);
        const int64_t second = job.engine(rank).submit(&b, 1, 0, nullptr, nullptr, nullptr);
        faults += status_of(job.engine(rank), first) != HVD_PRECONDITION;
        faults += status_of(job.engine(rank), second) != HVD_OK || !right.all(float(job.size()));
      }
    });
    const Case c("hosts", locals.size(), "ranks", job.size());
    CHECK_EQ(faults.load(), 0L);
  }
}

// Each rank hands the same six tensors in, cut into parts of its own: 6; 2, 2, 2; 1, 1, ... A mismatch fails the part
// it is in, and nothing else.
TEST(tensors_apart_are_matched_one_by_one) {
  for (const auto& locals : jobs()) {
    Job job(locals);
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      Engine& engine = job.engine(rank);
      const size_t cut = rank == 0 ? 6 : rank == 1 ? 2 : 1;
      for (int round = 0; round < 6; ++round) {
        const bool wrong = round % 2 == 1 && job.size() > 1;
        std::vector<Gradient> tensors;
        std::vector<hvd_request> requests;
        for (size_t i = 0; i < 6; ++i)
          tensors.emplace_back("t" + std::to_string(i), 5 + i + (wrong && i == 3 && rank == 1), 1.f);
        for (Gradient& t : tensors) requests.push_back(t.request());
        for (size_t first = 0; first < 6; first += cut) {
          const int64_t handle =
              engine.submit(&requests[first], static_cast<int32_t>(cut), HVD_APART, nullptr, nullptr, nullptr);
          const bool fails = wrong && first <= 3 && 3 < first + cut;
          faults += status_of(engine, handle) != (fails ? HVD_PRECONDITION : HVD_OK);
        }
        for (size_t i = 0; i < 6; ++i) faults += !(wrong && i == 3) && !tensors[i].all(float(job.size()));
      }
    });
    const Case c("hosts", locals.size(), "ranks", job.size());
    CHECK_EQ(faults.load(), 0L);
  }
}

// One rank stops while others wait for it: their handles fail with who left and why, and nothing hangs.
TEST(shutdown_fails_what_is_outstanding_and_says_who_left_and_why) {
  for (const auto& locals : jobs()) {
    if (locals == std::vector<int>{1}) continue;
    for (const std::string reason : {"", "ValueError: no such file (train.py:41)"}) {
      Job job(locals);
      const int leaver = job.size() - 1;
      const std::string who = job.engine(0).topology.describe(leaver) + " left";
      std::atomic<long> faults{0};
      job.each([&](int rank) {
        if (rank == leaver) return job.engine(rank).stop(reason);
        const auto told = [&](const std::string& text) {
          return text.rfind("Horovod has been shut down. This was caused by", 0) == 0 &&
                 text.find(who + (reason.empty() ? " in good order" : ": " + reason)) != std::string::npos;
        };
        Gradient t("never", 10, 1.f);
        const hvd_request r = t.request();
        for (int again = 0; again < 2; ++again) {  // what is outstanding, and what comes later
          try {
            const int64_t handle = job.engine(rank).submit(&r, 1, 0, nullptr, nullptr, nullptr);
            const Status status = job.engine(rank).wait(handle, 30.0);
            faults += status.code != HVD_UNKNOWN || !told(status.text);
            job.engine(rank).release(handle);
          } catch (const Refused& refused) {  // the shutdown was faster
            faults += refused.code != HVD_UNKNOWN || !told(refused.what());
          }
        }
      });
      const Case c("hosts", locals.size(), "ranks", job.size(), "reason", reason);
      CHECK_EQ(faults.load(), 0L);
    }
  }
}

// Each rank waits for a tensor that no other sends; alone there is nobody to wait for, so no job of one.
TEST(abort_reaches_every_rank) {
  for (const auto& locals : jobs()) {
    if (locals == std::vector<int>{1}) continue;
    Job job(locals);
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      Gradient t("waits" + std::to_string(rank), 10, 1.f);
      const hvd_request r = t.request();
      const auto told = [](const std::string& text) { return text.find("the test says so") != std::string::npos; };
      try {
        const int64_t handle = job.engine(rank).submit(&r, 1, 0, nullptr, nullptr, nullptr);
        if (rank == 0) job.engine(0).abort("the test says so");
        const Status status = job.engine(rank).wait(handle, 30.0);
        faults += status.code != HVD_UNKNOWN || !told(status.text);
      } catch (const Refused& refused) {  // the news was faster
        faults += !told(refused.what());
      }
    });
    const Case c("hosts", locals.size(), "ranks", job.size());
    CHECK_EQ(faults.load(), 0L);
  }
}
