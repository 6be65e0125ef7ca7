// SPDX-License-Identifier: Apache-2.0
//
// Blocking calls of GPU memory by the short way: that they take it, in one order with everything else.
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>
#include <utility>

#include "tests/check.h"
#include "tests/engine/gradient.h"
#include "tests/paths/cuda/gpu_job.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

Settings patient(const char* operations) {
  Settings settings = gpu_settings(operations);
  settings.spin_us = 1e6;  // whoever waits in a round waits for all to come
  return settings;
}

// Three ranks each way; body(job, rank, faults) counts what is wrong.
template <class Body>
void three_ranks_each_way(Body body) {
  for (const Way& way : kAllWays) {
    const Machine machine(way.by_stream);
    const Case c(way.operations, way.by_stream);
    GpuJob job({3}, way.operations);
    std::atomic<long> faults{0};
    job.each([&](int rank) { body(job, rank, faults); });
    CHECK_EQ(faults.load(), 0L);
  }
}

}  // namespace

// Ranks that have agreed on a tensor once start it without a plan, and streams that are late change nothing.
TEST(known_calls_need_no_plan) {
  standin_set_delay(200);
  for (const Way& way : kAllWays) {
    for (const auto& locals : std::vector<std::vector<int>>{{1}, {2}, {3}, {1, 1}}) {
      if (locals.size() > 1 && std::string(way.operations) == "direct") continue;
      const Machine machine(way.by_stream);
      GpuJob job(locals, patient(way.operations));
      const int ranks = job.size();
      const Case c(way.operations, way.by_stream, "hosts", locals.size(), "ranks", ranks);
      std::atomic<long> faults{0};
      std::atomic<float> next{1};
      auto calls = [&](int rank) {
        Array a(job.user(rank), filled(0));
        const float first = next;
        for (int i = 0; i < 20; ++i) {
          a.write(filled(first + float(i * rank)));
          const std::string name = "t" + std::to_string(i % 2);
          faults +=
              !job.call(rank, job.request(rank, HVD_ALLREDUCE, name.c_str(), HVD_FLOAT32, kShape, a.data(), a.data()))
                   .ok();
          faults += a.read() != filled(first * float(ranks) + float(i * ranks * (ranks - 1)) / 2);
        }
      };
      const bool needs_plans = locals.size() > 1 || (std::string(way.operations) == "host" && ranks > 1);
      bool as_expected = false;
      for (int round = 1; round <= 20 && !as_expected; ++round) {
        const long before = metric(job.engine(0), "plans");
        job.each(calls);
        next = next + 1;
        const long plans = metric(job.engine(0), "plans") - before;
        // While the machine is busy, the background thread may be in the way of some.
        as_expected = needs_plans ? plans >= 20 : plans < 10;
        for (int rank = 0; rank < ranks; ++rank) CHECK_EQ(metric(job.engine(rank), "batches"), 20L * round);
      }
      CHECK(as_expected);
      CHECK_EQ(faults.load(), 0L);
    }
  }
  standin_set_delay(50);
}

// What a rank leaves under way, on another stream, or in host memory, has its place before and after such calls.
TEST(short_and_long_ways_keep_one_order) {
  standin_set_delay(300);
  three_ranks_each_way([](GpuJob& job, int rank, std::atomic<long>& faults) {
    Engine& e = job.engine(rank);
    User& user = job.user(rank);
    User second(rank);                              // a stream of its own on the same GPU
    std::mt19937 same(7);                           // what is done
    std::mt19937 own{static_cast<unsigned>(rank)};  // when
    Array a(user, filled(0));
    Array b(second, filled(0));
    Array beside(user, filled(0));
    for (int turn = 1; turn <= 60; ++turn) {
      if (own() % 4 == 0) usleep(own() % 500);
      const unsigned what = same() % 4;
      int64_t handle = 0;
      if (what == 0) {
        beside.write(filled(float(turn)));
        const hvd_request r =
            job.request(rank, HVD_ALLREDUCE, "beside", HVD_FLOAT32, kShape, beside.data(), beside.data());
        handle = e.submit(&r, 1, 0, nullptr, nullptr, nullptr);
      }
      if (what == 1) {
        Gradient host("h", size_t(10), float(rank + turn));
        faults += !job.call(rank, host.request()).ok() + !host.all(float(3 + 3 * turn));
      }
      a.write(filled(float(turn * (rank + 1))));
      faults += !job.call(rank, job.request(rank, HVD_ALLREDUCE, "a", HVD_FLOAT32, kShape, a.data(), a.data())).ok();
      if (what == 2) {
        b.write(filled(float(turn)));
        hvd_request r = job.request(rank, HVD_ALLREDUCE, "b", HVD_FLOAT32, kShape, b.data(), b.data());
        r.stream = second.stream;
        faults += !job.call(rank, r).ok() + (b.read() != filled(float(3 * turn)));
      }
      if (handle) {
        faults += !e.wait_stream(handle, user.stream, 60.0).ok() + (beside.read() != filled(float(3 * turn)));
        e.release(handle);
      }
      faults += a.read() != filled(float(6 * turn));
    }
  });
  standin_set_delay(50);
}

// Two threads of each rank: while one waits in a round, the other's tensor is announced, planned and started. All ranks
// must give their devices both in the same order.
TEST(another_thread_does_not_come_in_between) {
  three_ranks_each_way([](GpuJob& job, int rank, std::atomic<long>& faults) {
    User second(rank);
    std::thread beside([&] {
      Array b(second, filled(0));
      for (int turn = 1; turn <= 300; ++turn) {
        b.write(filled(float(turn)));
        hvd_request r = job.request(rank, HVD_ALLREDUCE, "b", HVD_FLOAT32, kShape, b.data(), b.data());
        r.stream = second.stream;
        Engine& e = job.engine(rank);
        const int64_t handle = e.submit(&r, 1, 0, nullptr, nullptr, nullptr);
        faults += !e.wait_stream(handle, second.stream, 60.0).ok();
        e.release(handle);
        faults += b.read() != filled(float(3 * turn));
      }
    });
    Array a(job.user(rank), filled(0));
    for (int turn = 1; turn <= 300; ++turn) {
      a.write(filled(float(-turn)));
      faults += !job.call(rank, job.request(rank, HVD_ALLREDUCE, "a", HVD_FLOAT32, kShape, a.data(), a.data())).ok();
      faults += a.read() != filled(float(-3 * turn));
    }
    beside.join();
  });
}

// Another GPU, or another shape, is not what the ranks have agreed on.
TEST(what_has_changed_goes_the_general_way) {
  const Machine machine;
  GpuJob job({2}, "NCCL");
  std::atomic<long> faults{0};
  job.each([&](int rank) {
    User elsewhere(rank + 4);
    for (int turn = 0; turn < 6; ++turn) {
      User& user = turn % 2 ? elsewhere : job.user(rank);
      Array a(user, filled(float(rank + 1)));
      hvd_request r = job.request(rank, HVD_ALLREDUCE, "t", HVD_FLOAT32, kShape, a.data(), a.data());
      r.device = user.device;
      r.stream = user.stream;
      faults += !job.call(rank, r).ok() + (a.read() != filled(3));
    }
    const std::vector<int64_t> mine{500 + 100 * rank};
    Array a(job.user(rank), filled(1));
    const Status status = job.call(rank, job.request(rank, HVD_ALLREDUCE, "t", HVD_FLOAT32, mine, a.data(), a.data()));
    faults += status.ok() || status.text.find("shape") == std::string::npos;
  });
  CHECK_EQ(faults.load(), 0L);
}

// One rank cannot do its part of a call that all have come to: all hear of it, and no device is left waiting.
TEST(a_rank_that_cannot_launch_ends_the_job_everywhere) {
  for (bool by_stream : {false, true}) {
    const Case c(by_stream ? "by stream" : "spinning");
    const Machine machine(by_stream);
    {
      GpuJob job({2}, patient("direct"));
      std::atomic<long> faults{0};
      std::atomic<int> ready{0};
      job.each([&](int rank) {
        Array a(job.user(rank), filled(1));
        const hvd_request r = job.request(rank, HVD_ALLREDUCE, "t", HVD_FLOAT32, kShape, a.data(), a.data());
        for (int i = 0; i < 5; ++i) faults += !job.call(rank, r).ok();
        job.user(rank).synchronize();
        if (++ready == 2) standin_fail("cuLaunchKernel", 719, 0);
        while (ready < 2) usleep(100);
        Status status;
        for (int i = 0; i < 100 && status.ok(); ++i) status = job.call(rank, r);
        faults += status.code != HVD_UNKNOWN || status.text.find("CUDA_ERROR_LAUNCH_FAILED") == std::string::npos;
      });
      CHECK_EQ(faults.load(), 0L);
    }
    for (int device = 0; device < 2; ++device) CHECK(idle(device));
  }
}
