// SPDX-License-Identifier: Apache-2.0
//
// What goes wrong on GPUs: every rank hears of it with a text that helps, no work is left on a device, and the next
// engine of the process works.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/check.h"
#include "tests/paths/cuda/gpu_job.h"
#include "util/clock.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

bool has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  std::cerr << "'" << part << "' is not in: " << text << '\n';
  return false;
}

// An allreduce of ones on every rank. A result that was promised must be right.
std::vector<Status> reduce_all(GpuJob& job, const char* name) {
  std::vector<Status> statuses(size_t(job.size()));
  job.each([&](int rank) {
    Array a(job.user(rank), filled(1));
    Engine& e = job.engine(rank);
    Status& status = statuses[size_t(rank)];
    try {
      const hvd_request r = job.request(rank, HVD_ALLREDUCE, name, HVD_FLOAT32, kShape, a.data(), a.data());
      int64_t handle = 0;
      status = job.run(rank, r, &handle);
      const std::vector<char> got = a.read();
      if (status.ok()) status = e.wait(handle, 30.0);  // was it undisturbed?
      if (status.ok() && got != filled(float(job.size()))) status = {-99, "wrong"};
      e.release(handle);
    } catch (const Refused& refused) {
      status = {refused.code, refused.what()};
    }
  });
  return statuses;
}

// The same; all ranks must agree on how it went.
Status reduce(GpuJob& job, const char* name = "t") {
  std::vector<Status> statuses = reduce_all(job, name);
  for (const Status& s : statuses) CHECK_EQ(s.code, statuses[0].code);
  return statuses[0];
}

}  // namespace

// One rank's kernel never comes. The others' wait for it on their devices until they are let go.
TEST(a_rank_that_cannot_launch_ends_the_job_everywhere) {
  for (bool by_stream : {false, true}) {
    const Case c(by_stream ? "by stream" : "spinning");
    Machine machine(by_stream);
    for (int after : {0, 1, 4}) {
      {
        GpuJob job({3}, "direct");
        CHECK(reduce(job).ok());
        standin_fail(by_stream ? "cuStreamWriteValue32_v2" : "cuLaunchKernel", 719, after);
        // A rank whose part was done before may hear of it with its next call.
        std::vector<Status> last(3);
        for (int i = 0; i < 10 && std::any_of(last.begin(), last.end(), [](const Status& s) { return s.ok(); }); ++i)
          last = reduce_all(job, ("t" + std::to_string(i)).c_str());
        for (const Status& status : last) {
          CHECK_EQ(status.code, int(HVD_UNKNOWN));
          CHECK(has(status.text, "CUDA_ERROR_LAUNCH_FAILED"));
          CHECK(has(status.text, "rank "));
        }
      }
      for (int device = 0; device < 3; ++device) CHECK(idle(device));
      GpuJob again({3}, "direct");
      CHECK(reduce(again).ok());
    }
  }
}

// Somebody ends the job while devices are in the middle of a collective that cannot end by itself.
TEST(an_abort_lets_devices_go) {
  for (const Way& way : kAllWays) {
    const Case c(way.operations, way.by_stream);
    Machine machine(way.by_stream);
    {
      GpuJob job({2}, way.operations);
      CHECK(reduce(job).ok());
      std::atomic<long> faults{0};
      job.each([&](int rank) {
        Array a(job.user(rank), filled(1));
        if (rank == 1) {  // submits, but its device stands still before its part of the work
          User blocked(5);
          standin_nccl_hang(1);
        }
        // Rank 1's input is never ready: its user's stream waits for a word that nobody writes.
        Array word(job.user(rank), numbers(std::vector<uint32_t>{0}));
        job.user(rank).synchronize();  // another stream writes it next
        if (rank == 1)
          HVD_CUDA(stream_wait_value, job.user(rank).stream, cuda::address_of(word.data()), 1, cuda::kWaitAtLeast);
        const hvd_request r = job.request(rank, HVD_ALLREDUCE, "t", HVD_FLOAT32, kShape, a.data(), a.data());
        Engine& e = job.engine(rank);
        const int64_t handle = e.submit(&r, 1, 0, nullptr, nullptr, nullptr);
        if (rank == 0) {
          usleep(50000);
          e.abort("rank 7 on mars has gone");
        }
        const Status status = e.wait(handle, 60.0);
        faults += status.code != HVD_UNKNOWN || !has(status.text, "rank 7 on mars has gone");
        // Let the user's own stream go on, as a framework's would.
        if (rank == 1) {
          User rescue(job.user(rank).device);
          HVD_CUDA(stream_write_value, rescue.stream, cuda::address_of(word.data()), 1, 0);
          rescue.synchronize();
        }
        // What is still read is the input, by copies that began before; memory is only unmapped by a driver that waits.
        CHECK(idle(job.user(rank).device));
        e.release(handle);
      });
      CHECK_EQ(faults.load(), 0L);
    }
    for (int device = 0; device < 2; ++device) CHECK(idle(device));
    standin_nccl_hang(0);
    GpuJob again({2}, way.operations);
    CHECK(reduce(again).ok());
  }
}

// One rank's driving thread is about to give its stream a wait when the job is aborted, and the other's part never
// comes: that wait must be let go as well.
TEST(an_abort_in_the_middle_of_a_submission_lets_devices_go) {
  Machine machine(true);
  {
    GpuJob job({2}, "direct");
    CHECK(reduce(job).ok());
    standin_hold("cuLaunchKernel", 1);
    std::thread elsewhere([&] {
      while (standin_held() < 2) usleep(1000);
      job.engine(0).abort("rank 7 on mars has gone");
      usleep(50000);  // whoever lets go of streams finds them idle
      standin_fail("cuLaunchKernel", 719, 0);
      standin_hold("cuLaunchKernel", 0);
    });
    for (const Status& status : reduce_all(job, "t")) CHECK_EQ(status.code, int(HVD_UNKNOWN));
    elsewhere.join();
    for (int device = 0; device < 2; ++device) CHECK(idle(device));
  }
  GpuJob again({2}, "direct");
  CHECK(reduce(again).ok());
}

// A process may end, or its context be broken, while a job is taken apart: that must not take the process down.
TEST(who_asks_whether_work_is_left_hears_no_error) {
  const User user(0);  // the framework
  auto device = cuda::Device::get(0);
  device->stream(0);
  for (int code : {4, 201}) {  // the driver has gone; the context is none
    standin_fail("cuCtxPushCurrent_v2", code, 0);
    CHECK(device->drained(0.1));
  }
  CHECK_EQ(standin_current_device(), -1);  // and nothing is left behind on this thread
}

TEST(what_was_asked_for_and_cannot_be_had) {
  {
    GpuJob job({1, 1}, "direct");
    const Status status = reduce(job);
    CHECK_EQ(status.code, int(HVD_PRECONDITION));
    CHECK(has(status.text, "HOROVOD_GPU_OPERATIONS is direct, which cannot be had: the ranks are on several hosts"));
    // The job goes on: host tensors are unaffected.
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      std::vector<float> host(1000, 1.f);
      hvd_request r = job.request(rank, HVD_ALLREDUCE, "host", HVD_FLOAT32, kShape, host.data(), host.data());
      r.device = -1;
      Engine& e = job.engine(rank);
      const int64_t handle = e.submit(&r, 1, 0, nullptr, nullptr, nullptr);
      faults += !e.wait(handle, 30.0).ok() || host[5] != 2.f;
      e.release(handle);
    });
    CHECK_EQ(faults.load(), 0L);
    CHECK_EQ(reduce(job, "again").code, int(HVD_PRECONDITION));
  }
  {
    standin_fail("cuIpcOpenMemHandle_v2", 205, 0);
    GpuJob job({2}, "direct");
    const Status status = reduce(job);
    CHECK_EQ(status.code, int(HVD_PRECONDITION));
    CHECK(has(status.text, "cuIpcOpenMemHandle"));
  }
  {  // auto finds another way
    standin_fail("cuIpcOpenMemHandle_v2", 205, 0);
    GpuJob job({2}, "auto");
    CHECK(reduce(job).ok());
    CHECK(has(job.engine(0).device_report(), "NCCL 2.28.9; not direct: rank"));
  }
}

TEST(nccl_says_what_went_wrong_and_what_to_do) {
  struct Trouble {
    const char* call;
    int code;
    const char* text;
    const char* advice;
  };
  const Trouble troubles[] = {
      {"ncclCommInitRankConfig", 2, "Error while creating shared memory segment /dev/shm/nccl-x", "--shm-size"},
      {"ncclCommGetAsyncError", 2, "Call to connect to 10.0.0.1 failed: Bootstrap : no socket interface found",
       "NCCL_SOCKET_IFNAME"},
      {"ncclGetUniqueId", 1, "Cuda failure 'unknown error'", "dmesg"},
      {"ncclAllReduce", 3, "", "NCCL_DEBUG=WARN"},
  };
  for (const Trouble& trouble : troubles) {
    const Case c(trouble.call);
    Machine machine;
    {
      GpuJob job({2}, "NCCL");
      standin_nccl_fail(trouble.call, trouble.code, trouble.text);
      const Status status = reduce(job);
      CHECK_EQ(status.code, int(HVD_UNKNOWN));
      CHECK(has(status.text, "NCCL 2.28.9"));
      CHECK(has(status.text, trouble.text));
      CHECK(has(status.text, trouble.advice));
      CHECK(has(status.text, "rank "));
    }
    standin_nccl_fail("", 0, "");
    GpuJob again({2}, "NCCL");
    CHECK(reduce(again).ok());
  }
  {
    Machine machine(true);  // all ranks on one GPU
    GpuJob job({2}, "NCCL");
    const Status status = reduce(job);
    CHECK(has(status.text, "Duplicate GPU detected"));
    CHECK(has(status.text, "HOROVOD_GPU_OPERATIONS=direct"));
  }
}

TEST(out_of_device_memory) {
  Machine machine;
  const std::vector<int64_t> shape{200000};
  const char* const names[] = {"a", "b", "c"};
  {
    GpuJob job({2}, "NCCL");
    CHECK(reduce(job).ok());
    std::vector<std::vector<std::unique_ptr<Array>>> arrays(2);
    job.each([&](int rank) {
      for (size_t i = 0; i < 3; ++i)
        arrays[size_t(rank)].push_back(std::make_unique<Array>(job.user(rank), filled(1, 200000)));
    });
    standin_fail("cuMemAlloc_v2", 2, 0);
    std::vector<std::string> texts(2);
    job.each([&](int rank) {
      std::vector<hvd_request> requests;
      for (size_t i = 0; i < 3; ++i) {
        void* data = arrays[size_t(rank)][i]->data();
        requests.push_back(job.request(rank, HVD_ALLREDUCE, names[i], HVD_FLOAT32, shape, data, data));
      }
      int64_t handle = 0;
      Status status = job.run(rank, requests, &handle);
      if (status.ok()) status = job.engine(rank).wait(handle, 30.0);
      job.engine(rank).release(handle);
      texts[size_t(rank)] = status.text;
    });
    for (const std::string& text : texts) {
      CHECK(has(text, "no 4 MiB of memory on GPU "));
      CHECK(has(text, "for the fusion buffer"));
      CHECK(has(text, "are free"));
      CHECK(has(text, "HOROVOD_FUSION_THRESHOLD"));
    }
  }
  standin_fail("cuMemAlloc_v2", 0, 0);
  GpuJob again({2}, "NCCL");
  CHECK(reduce(again).ok());
}

// A GPU that is full before the first collective: not even the engine's own words fit.
TEST(no_device_memory_at_all) {
  const Machine machine;
  for (auto [way, call] : {std::pair("direct", "cuMemAlloc_v2"), std::pair("NCCL", "cuMemAlloc_v2"),
                           std::pair("direct", "cuStreamCreateWithPriority")}) {
    const Case c(way, call);
    {
      GpuJob job({2}, way);
      std::vector<std::unique_ptr<Array>> arrays(2);
      job.each([&](int rank) { arrays[size_t(rank)] = std::make_unique<Array>(job.user(rank), filled(1)); });
      standin_fail(call, 2, 0);
      std::vector<Status> statuses(2);
      job.each([&](int rank) {
        void* data = arrays[size_t(rank)]->data();
        statuses[size_t(rank)] = job.call(rank, job.request(rank, HVD_ALLREDUCE, "t", HVD_FLOAT32, kShape, data, data));
      });
      for (const Status& status : statuses) {
        CHECK_EQ(status.code, int(HVD_UNKNOWN));
        CHECK(has(status.text, "of memory on GPU"));
        CHECK(has(status.text, "are free"));
        CHECK(has(status.text, "rank "));
      }
    }
    GpuJob again({2}, way);
    CHECK(reduce(again).ok());
  }
}

TEST(ranks_that_disagree_are_told_who_sent_what) {
  GpuJob job({2}, "auto");
  std::atomic<long> faults{0};
  job.each([&](int rank) {
    Engine& e = job.engine(rank);
    Array a(job.user(rank), filled(1));
    std::vector<float> host(1000, 1.f);
    hvd_request r = job.request(rank, HVD_ALLREDUCE, "mixed", HVD_FLOAT32, kShape, a.data(), a.data());
    if (rank == 1) {
      r.device = -1;
      r.input = r.output = host.data();
    }
    int64_t handle = e.submit(&r, 1, 0, nullptr, nullptr, nullptr);
    Status status = e.wait(handle, 30.0);
    e.release(handle);
    faults += status.code != HVD_PRECONDITION;
    faults += !has(status.text, "Mismatched ALLREDUCE CPU/GPU device selection");
    faults += !has(status.text, "rank 0 on node0 sent ALLREDUCE float32 [1000] op Sum scales (1, 1) on a GPU");
    faults += !has(status.text, "rank 1 on node0 sent ALLREDUCE float32 [1000] op Sum scales (1, 1)");

    hvd_request half = job.request(rank, HVD_ALLREDUCE, "half", HVD_FLOAT32, kShape, a.data(), a.data());
    half.wire_dtype = rank ? HVD_BFLOAT16 : 0;
    handle = e.submit(&half, 1, 0, nullptr, nullptr, nullptr);
    status = e.wait(handle, 30.0);
    e.release(handle);
    faults += status.code != HVD_PRECONDITION || !has(status.text, "bfloat16 compression");
  });
  CHECK_EQ(faults.load(), 0L);
  CHECK(reduce(job).ok());
}

TEST(requests_that_make_no_sense_are_refused) {
  GpuJob job({1}, "auto");
  Array a(job.user(0), filled(1));
  auto refusal = [&](hvd_request r) {
    try {
      job.engine(0).submit(&r, 1, 0, nullptr, nullptr, nullptr);
      return std::string("accepted");
    } catch (const Refused& e) {
      return std::string(e.what());
    }
  };
  hvd_request r = job.request(0, HVD_ALLREDUCE, "t", HVD_FLOAT32, kShape, a.data(), a.data());
  r.device = 99;
  CHECK(has(refusal(r), "there is no GPU 99: this process sees 8"));
  r.device = 0;
  r.wire_dtype = HVD_FLOAT32;
  CHECK(has(refusal(r), "travels as float16 or bfloat16"));
  r = job.request(0, HVD_ALLGATHER, "t", HVD_FLOAT32, kShape, a.data(), nullptr);
  r.wire_dtype = HVD_FLOAT16;
  CHECK(has(refusal(r), "travels as float16 or bfloat16"));
}
