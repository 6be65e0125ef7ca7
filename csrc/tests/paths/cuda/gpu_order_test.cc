// SPDX-License-Identifier: Apache-2.0
//
// Stream order: what comes before and after a collective, who waits for whom, how long memory lives.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/check.h"
#include "tests/paths/cuda/gpu_job.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

struct Paused {
  Paused() { standin_pause(1); }
  ~Paused() { standin_pause(0); }
};

int calls_that_wait() { return standin_calls("cuStreamSynchronize") + standin_calls("cuEventSynchronize"); }

}  // namespace

// Kernels queued before a collective are seen by it, those after it see its result, however late the streams are.
TEST(a_collective_has_its_place_in_the_stream) {
  standin_set_mps(1);
  standin_share_gpus(0);
  standin_set_delay(500);
  for (const char* way : kWays) {
    GpuJob job({2}, way);
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      User& user = job.user(rank);
      Array a(user, filled(0));
      Array b(user, filled(0));
      for (int turn = 1; turn <= 20; ++turn) {
        a.write(filled(float(turn * (rank + 1))));
        hvd_request r = job.request(rank, HVD_ALLREDUCE, "t", HVD_FLOAT32, kShape, a.data(), a.data());
        faults += !job.run(rank, r).ok();
        HVD_CUDA(copy_async, cuda::address_of(b.data()), cuda::address_of(a.data()), a.bytes(), user.stream);
        a.write(filled(-1));
        faults += !all(b.read(), float(turn * 3));
      }
    });
    const Case c(way);
    CHECK_EQ(faults.load(), 0L);
  }
  standin_set_delay(50);
}

// Who waits at once with its stream is served on that stream: in order with what the engine does on its own, with other
// streams of the user's, and with less ado.
TEST(who_waits_at_once_is_served_on_its_own_stream) {
  standin_set_delay(300);
  for (const char* way : kWays) {
    GpuJob job({2}, way);
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      User& user = job.user(rank);
      User second(rank);  // a stream of its own on the same GPU
      Array a(user, filled(0));
      Array b(second, filled(0));
      Array c(user, filled(1, 400000));
      const std::vector<int64_t> large{400000};
      Engine& e = job.engine(rank);
      auto at_once = [&](const hvd_request& r) {
        const int64_t handle = e.submit(&r, 1, HVD_WILL_WAIT | HVD_IN_STREAM, nullptr, nullptr, nullptr);
        faults += !e.wait_stream(handle, r.stream, 30.0).ok();
        e.release(handle);
      };
      for (int turn = 1; turn <= 10; ++turn) {
        c.write(filled(float(turn), 400000));
        const hvd_request beside = job.request(rank, HVD_ALLREDUCE, "c", HVD_FLOAT32, large, c.data(), c.data());
        const int64_t handle = e.submit(&beside, 1, 0, nullptr, nullptr, nullptr);
        a.write(filled(float(turn * (rank + 1))));
        b.write(filled(float(turn)));
        at_once(job.request(rank, HVD_ALLREDUCE, "a", HVD_FLOAT32, kShape, a.data(), a.data()));
        hvd_request other = job.request(rank, HVD_ALLREDUCE, "b", HVD_FLOAT32, kShape, b.data(), b.data());
        other.stream = second.stream;
        at_once(other);
        faults += !e.wait_stream(handle, user.stream, 30.0).ok();
        e.release(handle);
        faults += !all(a.read(), float(turn * 3)) + !all(b.read(), float(turn * 2)) + !all(c.read(), float(turn * 2));
      }
    });
    const Case c(way);
    CHECK_EQ(faults.load(), 0L);
  }
  standin_set_delay(50);
}

TEST(a_moment_is_noted_once_for_many_inputs) {
  for (const char* way : {"direct", "NCCL"}) {
    GpuJob job({2}, way);
    std::atomic<long> faults{0};
    std::vector<std::unique_ptr<Array>> arrays(2 * 40);
    auto step = [&](uint32_t flags) {
      const int before = standin_calls("cuEventRecord");
      job.each([&](int rank) {
        Engine& e = job.engine(rank);
        std::vector<int64_t> handles;
        for (int i = 0; i < 40; ++i) {
          std::unique_ptr<Array>& a = arrays[size_t(rank * 40 + i)];
          if (!a) a = std::make_unique<Array>(job.user(rank), filled(0));
          a->write(filled(float(i)));
          const std::string name = "t" + std::to_string(i);
          const hvd_request r =
              job.request(rank, HVD_ALLREDUCE, name.c_str(), HVD_FLOAT32, kShape, a->data(), a->data());
          handles.push_back(e.submit(&r, 1, flags, nullptr, nullptr, nullptr));
        }
        for (int i = 0; i < 40; ++i) {
          faults += !e.wait_stream(handles[size_t(i)], job.user(rank).stream, 30.0).ok();
          e.release(handles[size_t(i)]);
          faults += !all(arrays[size_t(rank * 40 + i)]->read(), 2.f * float(i));
        }
      });
      return standin_calls("cuEventRecord") - before;
    };
    step(0);
    const Case c(way);
    CHECK(step(0) >= 2 * 40);  // each is noted, since each wakes the engine
    // Whoever waits first takes all up: one moment for the inputs, and one for the results of each batch. While the
    // machine is busy the background thread may be awake for long, and takes up some before.
    int noted = step(HVD_WILL_WAIT);
    for (int again = 0; again < 20 && noted > 2 * 20; ++again) noted = step(HVD_WILL_WAIT);
    CHECK(noted <= 2 * 20);
    CHECK_EQ(faults.load(), 0L);
  }
}

// The device stands still: submitting, and waiting with a stream, come back all the same.
TEST(the_host_does_not_wait_for_the_device) {
  for (const char* way : {"direct", "NCCL"}) {
    GpuJob job({2}, way);
    std::atomic<long> faults{0};
    std::vector<std::unique_ptr<Array>> arrays(2);
    job.each([&](int rank) {  // the first one makes the group
      arrays[size_t(rank)] = std::make_unique<Array>(job.user(rank), filled(1));
      void* data = arrays[size_t(rank)]->data();
      faults += !job.run(rank, job.request(rank, HVD_ALLREDUCE, "t", HVD_FLOAT32, kShape, data, data)).ok();
      faults += !all(arrays[size_t(rank)]->read(), 2);
    });
    const int before = calls_that_wait();
    {
      Paused paused;
      job.each([&](int rank) {
        void* data = arrays[size_t(rank)]->data();
        int64_t handle = 0;
        for (int i = 0; i < 5; ++i) {
          const std::string name = "t" + std::to_string(i);
          const hvd_request r = job.request(rank, HVD_ALLREDUCE, name.c_str(), HVD_FLOAT32, kShape, data, data);
          faults += !job.run(rank, r, &handle).ok();
        }
        faults += job.engine(rank).poll(handle) != 0;
        faults += job.engine(rank).wait(handle, 0.01).code != HVD_TIMEOUT;
        job.engine(rank).release(handle);
      });
    }
    const Case c(way);
    CHECK_EQ(calls_that_wait(), before);
    job.each([&](int rank) { faults += !all(arrays[size_t(rank)]->read(), 64); });
    CHECK_EQ(faults.load(), 0L);
  }
}

// A timeline does not change that: while the device stands still nothing is told, and afterwards all of it.
TEST(a_timeline_does_not_wait_for_the_device) {
  for (const char* way : {"direct", "NCCL"}) {
    GpuJob job({2}, way);
    std::atomic<long> faults{0};
    std::vector<std::unique_ptr<Array>> arrays(2);
    auto reduce = [&](int rank, const std::string& name) {
      void* data = arrays[size_t(rank)]->data();
      faults += !job.run(rank, job.request(rank, HVD_ALLREDUCE, name.c_str(), HVD_FLOAT32, kShape, data, data)).ok();
    };
    char folder[] = "/tmp/hvd-gpu-order-XXXXXX";
    const std::string path = std::string(mkdtemp(folder)) + "/t";
    job.each([&](int rank) {
      arrays[size_t(rank)] = std::make_unique<Array>(job.user(rank), filled(1));
      reduce(rank, "first");
      arrays[size_t(rank)]->read();
      job.engine(rank).start_timeline(path + ".json", false);
    });
    const int before = calls_that_wait();
    {
      Paused paused;
      job.each([&](int rank) {
        for (int i = 0; i < 5; ++i) reduce(rank, "t" + std::to_string(i));
      });
    }
    const Case c(way);
    CHECK_EQ(calls_that_wait(), before);
    job.each([&](int rank) {
      faults += !all(arrays[size_t(rank)]->read(), 64);
      job.engine(rank).stop_timeline();
    });
    for (int rank = 0; rank < 2; ++rank) {
      std::ifstream file(path + (rank ? ".rank1.json" : ".json"));
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      size_t spans = 0;
      for (size_t at = text.find("input_us"); at != std::string::npos; at = text.find("input_us", at + 1)) ++spans;
      CHECK_EQ(spans, size_t(5));
    }
    std::filesystem::remove_all(folder);
    CHECK_EQ(faults.load(), 0L);
  }
}

// poll and wait on the host look at the device.
TEST(poll_and_wait_see_the_device) {
  for (const char* way : kWays) {
    GpuJob job({2}, way);
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      Array a(job.user(rank), filled(1));
      const hvd_request r = job.request(rank, HVD_ALLREDUCE, "t", HVD_FLOAT32, kShape, a.data(), a.data());
      Engine& e = job.engine(rank);
      const int64_t handle = e.submit(&r, 1, 0, nullptr, nullptr, nullptr);
      faults += !e.wait(handle, 30.0).ok();
      faults += e.poll(handle) != 1;
      std::vector<char> now(a.bytes());
      std::memcpy(now.data(), a.data(), now.size());  // no stream was asked
      faults += !all(now, 2);
      e.release(handle);
    });
    const Case c(way);
    CHECK_EQ(faults.load(), 0L);
  }
}

// A handle that is released at once: the work is done, and the engine's own memory lives until then.
TEST(a_released_handle_is_still_carried_out) {
  GpuJob job({2}, "direct");
  std::atomic<long> faults{0};
  job.each([&](int rank) {
    Array a(job.user(rank), filled(1));
    const hvd_request gather = job.request(rank, HVD_ALLGATHER, "g", HVD_FLOAT32, kShape, a.data(), nullptr);
    const hvd_request reduce = job.request(rank, HVD_ALLREDUCE, "r", HVD_FLOAT32, kShape, a.data(), a.data());
    Engine& e = job.engine(rank);
    e.release(e.submit(&gather, 1, 0, nullptr, nullptr, nullptr));
    faults += !job.run(rank, reduce).ok();
    faults += !all(a.read(), 2);
  });
  CHECK_EQ(faults.load(), 0L);
}

// Nothing is left on the device by an engine that has stopped, but for the memory that others may still map.
TEST(memory_is_given_back) {
  auto once = [] {
    GpuJob job({2}, "auto");
    job.each([&](int rank) {
      Array a(job.user(rank), filled(1, 400000));
      const std::vector<int64_t> shape{400000};
      const hvd_request r = job.request(rank, HVD_ALLREDUCE, "t", HVD_FLOAT32, shape, a.data(), a.data());
      const hvd_request g = job.request(rank, HVD_ALLGATHER, "g", HVD_FLOAT32, shape, a.data(), nullptr);
      job.run(rank, r);
      job.run(rank, g);
      a.read();
    });
  };
  once();
  const unsigned long long before = standin_allocated();
  for (int i = 0; i < 3; ++i) once();
  CHECK_EQ(standin_allocated(), before);
}
