// SPDX-License-Identifier: Apache-2.0
//
// Batches in flight on a path that ends them late and out of order: every rank starts them in the plan's order, several
// at a time, and whatever happens each handle ends exactly once.
#include "engine/executor.h"

#include <atomic>

#include "tests/check.h"
#include "tests/engine/fake_path.h"
#include "tests/engine/gradient.h"
#include "tests/engine/job.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

std::vector<std::vector<int>> jobs() { return {{1}, {2}, {3}, {1, 1}, {2, 1}}; }

Settings one_by_one() {
  Settings settings;
  settings.fusion_threshold = 0;  // each tensor is a batch
  return settings;
}

// A job with a fake device on every rank.
struct DeviceJob {
  FakeWire wire;
  std::vector<FakePath*> paths;
  Job job;

  explicit DeviceJob(const std::vector<int>& locals, const Settings& settings = one_by_one())
      : paths(8), job(locals, settings, [this](int rank) {
          return std::vector<PathMaker>{[this, rank](Courier& courier) {
            auto path = std::make_unique<FakePath>(wire, courier, unsigned(rank) + 1);
            paths[size_t(rank)] = path.get();
            return path;
          }};
        }) {}

  void check_same_order() {
    for (int r = 1; r < job.size(); ++r) CHECK(paths[size_t(r)]->started == paths[0]->started);
  }
};

struct DeviceGradient : Gradient {
  using Gradient::Gradient;
  hvd_request request(int32_t set = 0) {
    hvd_request r = Gradient::request();
    r.device = 3;
    r.process_set = set;
    return r;
  }
};

// How often a handle's callback came, and with what.
struct Ends {
  std::atomic<int> calls{0}, failures{0};
  std::mutex mutex;
  std::string text;
  static void done(void* self, int64_t, int32_t status, const char* error) {
    auto* ends = static_cast<Ends*>(self);
    if (status != HVD_OK) {
      std::lock_guard<std::mutex> lock(ends->mutex);
      ends->text = error;
      ++ends->failures;
    }
    ++ends->calls;
  }
};

}  // namespace

TEST(several_batches_fly_at_once_in_one_order_on_every_rank) {
  constexpr int kCount = 12;
  for (const auto& locals : jobs()) {
    DeviceJob devices(locals);
    Job& job = devices.job;
    const Case c("hosts", locals.size(), "ranks", job.size());
    devices.wire.hold();
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      std::vector<DeviceGradient> tensors;
      for (int i = 0; i < kCount; ++i) tensors.emplace_back("g" + std::to_string(i), size_t(i + 1), float(rank + 1));
      std::vector<int64_t> handles;
      for (int k = 0; k < kCount; ++k) {
        const hvd_request r = tensors[size_t((k + 5 * rank) % kCount)].request();  // an order of its own
        handles.push_back(job.engine(rank).submit(&r, 1, 0, nullptr, nullptr, nullptr));
      }
      devices.paths[size_t(rank)]->wait_for_flights(kCount);
      for (int64_t handle : handles) faults += job.engine(rank).poll(handle) != 0;
      // Host memory does not wait for the device.
      Gradient host("host", 3, 1.f);
      const hvd_request r = host.request();
      const int64_t other = job.engine(rank).submit(&r, 1, HVD_WILL_WAIT, nullptr, nullptr, nullptr);
      faults += !job.engine(rank).wait(other, 30).ok() || !host.all(float(job.size()));
      if (rank == 0) devices.wire.release();
      for (int64_t handle : handles) {
        faults += !job.engine(rank).wait(handle, 30).ok();
        job.engine(rank).release(handle);
      }
      const float sum = float(job.size() * (job.size() + 1)) / 2;
      for (const DeviceGradient& t : tensors) faults += !t.all(sum);
    });
    CHECK_EQ(faults.load(), 0L);
    devices.check_same_order();
    bool shuffled = false;
    for (int r = 0; r < job.size(); ++r) {
      const FakePath& path = *devices.paths[size_t(r)];
      CHECK_EQ(path.started.size(), size_t(kCount));
      CHECK_EQ(path.most_in_flight, size_t(kCount));
      for (size_t i = 1; i < path.started.size(); ++i) CHECK(path.started[i - 1].second < path.started[i].second);
      shuffled |= !std::is_sorted(path.finished.begin(), path.finished.end());
      CHECK_EQ(path.ids.at(0), devices.paths[0]->ids.at(0));  // the first member's word reached everybody
    }
    CHECK(shuffled);
  }
}

// Whoever hears of the end may ask at once what this rank does.
TEST(what_has_ended_is_no_longer_under_way) {
  DeviceJob devices({2});
  Job& job = devices.job;
  std::atomic<long> faults{0};
  struct Asker {
    Engine* engine;
    std::atomic<bool> done{false};
    std::string heard;
    static void ask(void* self, int64_t, int32_t, const char*) {
      auto* asker = static_cast<Asker*>(self);
      asker->heard = asker->engine->now();
      asker->done = true;
    }
  };
  job.each([&](int rank) {
    DeviceGradient tensor("g", 5, 1.f);
    Asker asker;
    asker.engine = &job.engine(rank);
    const hvd_request r = tensor.request();
    job.engine(rank).submit(&r, 1, HVD_AUTO_RELEASE, nullptr, Asker::ask, &asker);
    while (!asker.done) std::this_thread::yield();
    faults += asker.heard.find("\"state\": \"idle\"") == std::string::npos;
  });
  CHECK_EQ(faults.load(), 0L);
}

TEST(a_failed_batch_fails_its_handles_once_and_the_job_goes_on) {
  for (const auto& locals : jobs()) {
    DeviceJob devices(locals);
    Job& job = devices.job;
    const Case c("hosts", locals.size(), "ranks", job.size());
    devices.wire.fail_every = 3;
    std::atomic<long> faults{0}, failures{0};
    job.each([&](int rank) {
      for (int round = 0; round < 4; ++round) {
        std::vector<DeviceGradient> tensors;
        for (int i = 0; i < 9; ++i) tensors.emplace_back("g" + std::to_string(i), 5, 1.f);
        std::vector<Ends> ends(tensors.size());
        for (size_t i = 0; i < tensors.size(); ++i) {
          const hvd_request r = tensors[i].request();
          job.engine(rank).submit(&r, 1, HVD_AUTO_RELEASE, nullptr, Ends::done, &ends[i]);
        }
        for (Ends& e : ends)
          while (e.calls == 0) std::this_thread::yield();
        for (size_t i = 0; i < tensors.size(); ++i) {
          faults += ends[i].calls != 1;
          if (ends[i].failures) faults += ends[i].text.find("the device refused batch") == std::string::npos;
          else faults += !tensors[i].all(float(job.size()));
          failures += ends[i].failures;
        }
      }
    });
    CHECK_EQ(faults.load(), 0L);
    CHECK_EQ(failures.load(), 12L * job.size());  // every third of 36
    devices.check_same_order();
  }
}

// A group whose members fly in different batches: the handle fails if one of them does.
TEST(a_group_ends_with_its_last_batch) {
  for (const auto& locals : jobs()) {
    DeviceJob devices(locals);
    Job& job = devices.job;
    const Case c("hosts", locals.size(), "ranks", job.size());
    std::atomic<long> faults{0};
    for (uint64_t fail_every : {0, 2}) {
      devices.wire.fail_every = fail_every;
      job.each([&](int rank) {
        std::vector<DeviceGradient> tensors;
        std::vector<hvd_request> requests;
        for (int i = 0; i < 4; ++i) tensors.emplace_back("m" + std::to_string(i), 5, 1.f);
        for (DeviceGradient& t : tensors) requests.push_back(t.request());
        Ends ends;
        job.engine(rank).submit(requests.data(), 4, HVD_AUTO_RELEASE, nullptr, Ends::done, &ends);
        while (ends.calls == 0) std::this_thread::yield();
        faults += ends.failures != (fail_every ? 1 : 0);
      });
    }
    CHECK_EQ(faults.load(), 0L);
  }
}

// What flies when the job is aborted fails once, when the path has let go of it, and with the abort's text.
TEST(an_abort_reaches_what_is_in_flight_and_what_waits_once) {
  for (const auto& locals : jobs()) {
    for (bool by_path : {false, true}) {
      DeviceJob devices(locals);
      Job& job = devices.job;
      const Case c("hosts", locals.size(), "ranks", job.size(), by_path ? "broken path" : "hvd_abort");
      devices.wire.hold();
      std::atomic<long> faults{0};
      std::atomic<int> flying{0};
      job.each([&](int rank) {
        std::vector<DeviceGradient> tensors;
        for (int i = 0; i < 6; ++i) tensors.emplace_back("g" + std::to_string(i), 5, 1.f);
        tensors.emplace_back("alone" + std::to_string(rank), 5, 1.f);  // never becomes ready in a job of several
        std::vector<Ends> ends(tensors.size());
        for (size_t i = 0; i < tensors.size(); ++i) {
          if (i == 6 && job.size() == 1) continue;
          const hvd_request r = tensors[i].request();
          job.engine(rank).submit(&r, 1, HVD_AUTO_RELEASE, nullptr, Ends::done, &ends[i]);
        }
        devices.paths[size_t(rank)]->wait_for_flights(6);
        ++flying;
        while (flying < job.size()) std::this_thread::yield();
        if (rank == 0 && by_path) devices.paths[0]->break_down("the test says so");
        else if (rank == 0) job.engine(0).abort("the test says so");
        for (size_t i = 0; i < (job.size() == 1 ? 6u : 7u); ++i) {
          while (ends[i].calls == 0) std::this_thread::yield();
          faults += ends[i].failures != 1 || ends[i].text.find("the test says so") == std::string::npos;
        }
        job.engine(rank).stop("");
        for (Ends& e : ends) faults += e.calls > 1;
      });
      CHECK_EQ(faults.load(), 0L);
    }
  }
}

// A rank leaves while batches fly: they were started everywhere, so they may end; what waits fails.
TEST(a_shutdown_lets_what_is_in_flight_end) {
  for (const auto& locals : jobs()) {
    DeviceJob devices(locals);
    Job& job = devices.job;
    const Case c("hosts", locals.size(), "ranks", job.size());
    devices.wire.hold();
    std::atomic<long> faults{0};
    std::atomic<int> flying{0}, told{0};
    job.each([&](int rank) {
      DeviceGradient flies("flies", 5, 1.f);
      DeviceGradient waits("waits" + std::to_string(rank), 5, 1.f);
      Ends first, second;
      const hvd_request a = flies.request(), b = waits.request();
      job.engine(rank).submit(&a, 1, HVD_AUTO_RELEASE, nullptr, Ends::done, &first);
      devices.paths[size_t(rank)]->wait_for_flights(1);
      if (job.size() > 1) job.engine(rank).submit(&b, 1, HVD_AUTO_RELEASE, nullptr, Ends::done, &second);
      ++flying;
      while (flying < job.size()) std::this_thread::yield();
      std::thread leaving([&] { job.engine(rank).stop("the test is over"); });
      while (job.size() > 1 && second.calls == 0) std::this_thread::yield();
      faults += first.calls != 0;  // held: the shutdown did not end it
      ++told;
      while (told < job.size()) std::this_thread::yield();
      devices.wire.release();
      leaving.join();
      faults += first.calls != 1 || first.failures != 0 || !flies.all(float(job.size()));
      if (job.size() == 1) return;
      faults += second.calls != 1 || second.failures != 1;
      faults += second.text.find("left: the test is over") == std::string::npos;
    });
    CHECK_EQ(faults.load(), 0L);
  }
}

TEST(a_process_set_goes_away_under_a_batch_in_flight) {
  for (const auto& locals : jobs()) {
    DeviceJob devices(locals);
    Job& job = devices.job;
    if (job.size() < 2) continue;
    const Case c("hosts", locals.size(), "ranks", job.size());
    devices.wire.hold();
    std::atomic<long> faults{0};
    std::atomic<int> removed{0};
    job.each([&](int rank) {
      const int32_t set = job.engine(rank).add_process_set({job.size() - 1});  // one rank: no links to open
      const bool member = rank == job.size() - 1;
      DeviceGradient flies("flies", 5, 1.f);
      int64_t handle = 0;
      if (member) {
        const hvd_request r = flies.request(set);
        handle = job.engine(rank).submit(&r, 1, 0, nullptr, nullptr, nullptr);
        devices.paths[size_t(rank)]->wait_for_flights(1);
      }
      job.engine(rank).remove_process_set(set);
      ++removed;
      while (removed < job.size()) std::this_thread::yield();
      if (!member) return;
      faults += job.engine(rank).poll(handle) != 0;
      devices.wire.release();
      faults += !job.engine(rank).wait(handle, 30).ok() || !flies.all(1.f);
      job.engine(rank).release(handle);
      try {
        const hvd_request r = flies.request(set);
        job.engine(rank).submit(&r, 1, 0, nullptr, nullptr, nullptr);
        ++faults;
      } catch (const Refused& refused) {
        faults += refused.code != HVD_INVALID;
      }
    });
    CHECK_EQ(faults.load(), 0L);
  }
}

TEST(a_joined_rank_contributes_zeros_on_the_device) {
  for (const auto& locals : jobs()) {
    DeviceJob devices(locals);
    Job& job = devices.job;
    if (job.size() < 2) continue;
    const Case c("hosts", locals.size(), "ranks", job.size());
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      Engine& engine = job.engine(rank);
      auto reduce = [&](float expected) {
        DeviceGradient t("g", 5, 1.f);
        const hvd_request r = t.request();
        const int64_t handle = engine.submit(&r, 1, HVD_WILL_WAIT, nullptr, nullptr, nullptr);
        faults += !engine.wait(handle, 30).ok() || !t.all(expected);
        engine.release(handle);
      };
      reduce(float(job.size()));
      if (rank != 0) reduce(float(job.size() - 1));  // rank 0 has joined
      hvd_request join{};
      join.struct_size = sizeof join;
      join.kind = HVD_JOIN;
      join.name = "join";
      join.device = -1;
      const int64_t handle = engine.submit(&join, 1, 0, nullptr, nullptr, nullptr);
      faults += !engine.wait(handle, 30).ok();
      engine.release(handle);
    });
    CHECK_EQ(faults.load(), 0L);
  }
}

TEST(device_memory_on_one_rank_and_host_memory_on_another_is_a_mismatch) {
  DeviceJob devices({2});
  std::atomic<long> faults{0};
  devices.job.each([&](int rank) {
    DeviceGradient t("mixed", 5, 1.f);
    hvd_request r = t.request();
    if (rank == 1) r.device = -1;
    const int64_t handle = devices.job.engine(rank).submit(&r, 1, 0, nullptr, nullptr, nullptr);
    const Status status = devices.job.engine(rank).wait(handle, 30);
    faults += status.code != HVD_PRECONDITION || status.text.find("CPU/GPU device selection") == std::string::npos;
  });
  CHECK_EQ(faults.load(), 0L);
}

// Threads submit to both memories at once, in different orders; fused and not.
TEST(many_threads_on_two_paths) {
  for (const auto& locals : jobs()) {
    for (int64_t threshold : {int64_t(0), int64_t(1) << 20}) {
      Settings settings;
      settings.fusion_threshold = threshold;
      DeviceJob devices(locals, settings);
      Job& job = devices.job;
      const Case c("hosts", locals.size(), "ranks", job.size(), "fusion", threshold);
      std::atomic<long> faults{0};
      job.each([&](int rank) {
        std::vector<std::thread> threads;
        for (int thread = 0; thread < 2; ++thread)
          threads.emplace_back([&, thread] {
            for (int round = 0; round < 10; ++round) {
              std::vector<DeviceGradient> tensors;
              for (int i = 0; i < 6; ++i)
                tensors.emplace_back("t" + std::to_string(thread) + "." + std::to_string(i), size_t(50 * i + 1), 1.f);
              std::vector<int64_t> handles;
              for (size_t k = 0; k < tensors.size(); ++k) {
                const size_t i = (k + size_t(rank) * 2) % tensors.size();
                hvd_request r = tensors[i].request();
                if (i % 2) r.device = -1;
                handles.push_back(job.engine(rank).submit(&r, 1, 0, nullptr, nullptr, nullptr));
              }
              for (int64_t handle : handles) {
                faults += !job.engine(rank).wait(handle, 30).ok();
                job.engine(rank).release(handle);
              }
              for (const DeviceGradient& t : tensors) faults += !t.all(float(job.size()));
            }
          });
        for (std::thread& t : threads) t.join();
      });
      CHECK_EQ(faults.load(), 0L);
      devices.check_same_order();
    }
  }
}
