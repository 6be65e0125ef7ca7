// SPDX-License-Identifier: Apache-2.0
//
// Blocking calls by the short way, among whole engines: that they take it, and that it mixes with everything else.
#include <atomic>
#include <random>
#include <utility>
#include <vector>

#include "tests/check.h"
#include "tests/engine/gradient.h"
#include "tests/engine/job.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

// As hvd_call.
int call(Engine& engine, const hvd_request& r) {
  if (engine.call_quickly(&r, 1)) return HVD_OK;
  const int64_t handle = engine.submit(&r, 1, HVD_WILL_WAIT, nullptr, nullptr, nullptr);
  const Status status = engine.wait(handle, 60.0);
  engine.release(handle);
  return status.code;
}

int call_later(Engine& engine, const hvd_request& r) {
  const int64_t handle = engine.submit(&r, 1, 0, nullptr, nullptr, nullptr);
  const Status status = engine.wait(handle, 60.0);
  engine.release(handle);
  return status.code;
}

hvd_request barrier() { return bare_request(HVD_BARRIER, "barrier.noname"); }

// Ranks on each host.
using Locals = std::vector<std::vector<int>>;

Settings patient() {
  Settings settings;
  settings.spin_us = 1e6;  // whoever waits in a round waits for all to come
  return settings;
}

}  // namespace

// What the plan has brought once needs no other: the ranks come to the same results by themselves.
TEST(known_calls_need_no_plan) {
  for (const auto& locals : Locals{{1}, {2}, {3}, {1, 1}, {2, 2}, {1, 1, 2}}) {
    Job job(locals, patient());
    const int ranks = job.size();
    const Case c("hosts", locals.size(), "ranks", ranks);
    std::atomic<long> faults{0};
    auto calls = [&](int rank) {
      Engine& engine = job.engine(rank);
      for (int i = 0; i < 60; ++i) {
        Gradient t("t" + std::to_string(i % 3), size_t(100), float(rank + 1));
        faults += call(engine, t.request()) != HVD_OK;
        faults += !t.all(float(ranks * (ranks + 1)) / 2);
        faults += call(engine, barrier()) != HVD_OK;
      }
    };
    // One for each name; and one more whenever the background thread, preempted while it drove, was in the way: that
    // may be often while the machine is busy.
    std::vector<long> before(size_t(ranks), 0);
    auto few_plans = [&] {
      bool few = true;
      for (int rank = 0; rank < ranks; ++rank) {
        const long plans = metric(job.engine(rank), "plans");
        few &= plans - std::exchange(before[size_t(rank)], plans) < 60;
      }
      return few;
    };
    bool few = false;
    for (long round = 1; round <= 20 && !few; ++round) {
      job.each(calls);
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK_EQ(metric(job.engine(rank), "batches"), 120L * round);
        CHECK_EQ(metric(job.engine(rank), "submitted"), 120L * round);
      }
      few = few_plans();
    }
    CHECK(few);
    CHECK_EQ(faults.load(), 0L);
  }
}

// Averages, scaled and not, results in place and elsewhere, and tensors that are too large for a round: of one host,
// and of two.
TEST(the_same_results_as_by_the_plan) {
  for (const auto& locals : Locals{{1}, {2}, {1, 1}, {2, 1}}) {
    Job job(locals, patient());
    const int ranks = job.size();
    const Case c("hosts", locals.size(), "ranks", ranks);
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      for (int i = 0; i < 16; ++i) {
        const bool in_place = i & 1;
        const bool scaled = i & 2;
        for (size_t count : {size_t(0), size_t(1), size_t(5000), size_t(50000), size_t(150000)}) {
          Gradient t("t" + std::to_string(count) + (scaled ? "s" : ""), count, float(rank + 1));
          std::vector<float> out(count, -1);
          hvd_request r = t.request();
          if (!in_place) r.output = out.data();
          r.reduce_op = HVD_AVERAGE;
          r.prescale = scaled ? 2 : 1;
          r.postscale = scaled ? 3 : 1;
          faults += call(job.engine(rank), r) != HVD_OK;
          const float want = float(scaled ? 6 : 1) * float(ranks + 1) / 2;  // the average of 1, 2, ...
          if (in_place) {
            faults += !t.all(want);
          } else {
            faults += std::any_of(out.begin(), out.end(), [&](float v) { return v != want; });
            faults += !t.all(float(rank + 1));
          }
        }
      }
    });
    CHECK_EQ(faults.load(), 0L);
  }
}

// Ranks choose at random how they call, and dawdle; a second thread of each has calls of its own under way.
TEST(short_and_long_ways_mix) {
  for (const auto& locals : Locals{{1}, {2}, {3}, {1, 1}, {2, 1}, {1, 2, 1}}) {
    Job job(locals);
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      Engine& engine = job.engine(rank);
      const float want = float(job.size() * (job.size() + 1)) / 2;
      auto calls = [&](const std::string& prefix, int count, unsigned seed) {
        std::mt19937 random(seed);
        for (int i = 0; i < count; ++i) {
          Gradient t(prefix + std::to_string(i % 4), size_t(1) << (i % 17), float(rank + 1));
          const unsigned dice = random() % 10;
          if (dice == 0) usleep(300);
          faults += (dice < 3 ? call_later(engine, t.request()) : call(engine, t.request())) != HVD_OK;
          faults += !t.all(want);
          if (i % 5 == 0) faults += prefix == "a" && call(engine, barrier()) != HVD_OK;
        }
      };
      std::thread second([&] { calls("b", 60, unsigned(100 + rank)); });
      calls("a", 150, unsigned(rank));
      second.join();
    });
    const Case c("hosts", locals.size(), "ranks", job.size());
    CHECK_EQ(faults.load(), 0L);
  }
}

#ifndef __SANITIZE_THREAD__  // which would be right: the user's threads race
// A flag that another thread sets while its rank waits for the others: they come to one result, whichever it is.
TEST(a_flag_set_meanwhile_is_the_same_for_all) {
  for (const auto& locals : Locals{{2}, {1, 1}}) {
    Job job(locals, patient());
    const Case c("hosts", locals.size());
    std::atomic<long> faults{0};
    std::vector<Gradient> flags;
    for (int rank = 0; rank < 2; ++rank) flags.emplace_back("flag", size_t(1), 0.f);
    auto reduce = [&](int rank) { faults += call(job.engine(rank), flags[size_t(rank)].request()) != HVD_OK; };
    for (int round = 0; round < 10; ++round) {
      for (Gradient& flag : flags) flag.data[0] = 0;
      std::thread waits([&] { reduce(0); });
      usleep(round ? 5000 : 0);  // by now it waits, for longer than anybody here takes to come
      if (round) static_cast<volatile float*>(flags[0].data.data())[0] = 1;
      reduce(1);
      waits.join();
      CHECK_EQ(flags[0].data[0], flags[1].data[0]);
    }
    CHECK_EQ(faults.load(), 0L);
  }
}
#endif

// One rank comes with another shape to a name that all know: all of them are told, and the next call is good again.
TEST(disagreement_is_told_to_all) {
  for (const auto& locals : Locals{{3}, {1, 1, 1}, {2, 1}}) {
    Job job(locals, patient());
    const Case c("hosts", locals.size());
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      Engine& engine = job.engine(rank);
      for (int i = 0; i < 12; ++i) {
        const bool wrong = i % 4 == 3;
        Gradient t("t", wrong && rank == i % 3 ? 7 : 8, 1.f);
        faults += call(engine, t.request()) != (wrong ? HVD_PRECONDITION : HVD_OK);
        if (!wrong) faults += !t.all(3.f);
      }
    });
    CHECK_EQ(faults.load(), 0L);
  }
}

// A rank that leaves while the others are in a round, or come to one.
TEST(the_end_of_the_job_ends_a_round) {
  for (const auto& locals : Locals{{3}, {1, 1, 1}, {2, 1}}) {
    Job job(locals);
    const Case c("hosts", locals.size());
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      Engine& engine = job.engine(rank);
      for (int i = 0; i < 20; ++i) {
        Gradient t("t", 4, 1.f);
        faults += call(engine, t.request()) != HVD_OK;
      }
      if (rank == 1) return engine.stop("has seen enough");
      Gradient t("t", 4, 1.f);
      try {
        faults += call(engine, t.request()) != HVD_UNKNOWN;
      } catch (const Refused& e) {
        faults += e.code != HVD_UNKNOWN;
      }
    });
    CHECK_EQ(faults.load(), 0L);
  }
}

// While somebody waits on his own in a round, nothing goes round in circles for long: he sleeps like anybody else.
TEST(who_waits_alone_ends_up_in_the_general_way) {
  for (const auto& locals : Locals{{2}, {1, 1}}) {
    Job job(locals);
    const Case c("hosts", locals.size());
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      Engine& engine = job.engine(rank);
      for (int i = 0; i < 5; ++i) {
        Gradient t("t", 4, 1.f);
        if (rank == 1 && i) {
          while (metric(job.engine(0), "cached_announcements") < i) usleep(500);  // rank 0 has given its round up
        }
        faults += call(engine, t.request()) != HVD_OK;
        faults += !t.all(2.f);
      }
    });
    CHECK_EQ(faults.load(), 0L);
  }
}

// A rank that is stopped before it has left a round keeps the next one from being given up: those who wait in it cannot
// go the general way, whose watch would name it, so they must be seen to wait.
TEST(who_waits_for_a_rank_stopped_in_an_earlier_round_is_seen) {
  Job job({2});
  job.each([&](int rank) {
    for (int i = 0; i < 5; ++i) {
      Gradient t("t", 4, 1.f);
      call(job.engine(rank), t.request());
    }
  });
  std::unique_ptr<Segment> shared = job.shared_memory(0);
  std::atomic<uint32_t>& in_round = shared->rank(1).in_round;
  in_round = 12345;
  const long announced = metric(job.engine(0), "cached_announcements");
  std::atomic<long> faults{0};
  auto calls = [&](int rank) {
    Gradient t("t", 4, 1.f);
    faults += call(job.engine(rank), t.request()) != HVD_OK;
    faults += !t.all(2.f);
  };
  std::thread waiting([&] { calls(0); });
  auto seen = [&] { return job.engine(0).now().find("\"name\": \"t\"") != std::string::npos; };
  for (int i = 0; i < 60000 && !seen(); ++i) usleep(1000);
  CHECK(seen());
  CHECK_EQ(metric(job.engine(0), "cached_announcements"), announced);
  in_round = 0;
  calls(1);
  waiting.join();
  CHECK_EQ(faults.load(), 0L);
}

// A day of small calls: the numbers of the rounds do not fit into what is said of them any more.
TEST(the_end_of_a_round_is_known_by_any_number) {
  for (uint32_t met : {1u, 2u, 0x7fffffffu, 0x80000000u, 0x80000001u, 0xffffffffu, 0u}) {
    const Case c("round", met);
    for (bool full : {false, true}) {
      const uint32_t end = QuickCall::end_of(met, full);
      CHECK(QuickCall::is_of(end, met));
      CHECK_EQ((end & 1) != 0, full);
      CHECK(!QuickCall::is_of(end, met + 1));
      CHECK(!QuickCall::is_of(end, met - 1));
    }
  }
}
