// SPDX-License-Identifier: Apache-2.0
//
// Many tensors in a batch, process sets, several GPUs of a rank, joined ranks, many threads.
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/check.h"
#include "tests/paths/cuda/gpu_job.h"

using namespace hvd;
using namespace hvd::testing;

// Many tensors of one batch: small ones in a buffer, large ones where they lie, a group with its own handle.
TEST(fusion) {
  for (const char* way : kWays) {
    GpuJob job({3}, way);
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      User& user = job.user(rank);
      std::vector<std::unique_ptr<Array>> arrays;
      std::vector<std::string> names;
      std::vector<std::vector<int64_t>> shapes;
      for (int i = 0; i < 300; ++i) {
        const size_t count = i % 50 == 7 ? 400000 : size_t(i % 13);  // some are empty
        arrays.push_back(std::make_unique<Array>(user, filled(float(rank + i), count), i % 7 == 3 ? 4 : 0));
        names.push_back("t" + std::to_string(i));
        shapes.push_back({int64_t(count)});
      }
      for (int round = 0; round < 2; ++round) {
        std::vector<hvd_request> requests;
        for (size_t i = 0; i < arrays.size(); ++i) {
          requests.push_back(job.request(rank, HVD_ALLREDUCE, names[i].c_str(), HVD_FLOAT32, shapes[i],
                                         arrays[i]->data(), arrays[i]->data()));
          requests.back().reduce_op = round ? HVD_AVERAGE : HVD_SUM;
        }
        faults += !job.run(rank, requests).ok();
      }
      for (size_t i = 0; i < arrays.size(); ++i) faults += !all(arrays[i]->read(), 3.f + 3.f * float(i));
    });
    const Case c(way);
    CHECK_EQ(faults.load(), 0L);
  }
}

TEST(grouped_gathers_and_scatters) {
  for (const char* way : kWays) {
    GpuJob job({2}, way);
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      User& user = job.user(rank);
      const std::vector<int64_t> rows{rank + 1, 3};
      const std::vector<int64_t> whole{4, 3};
      Array a(user, filled(1, size_t(rows[0]) * 3));
      Array b(user, filled(2, size_t(rows[0]) * 3));
      Array c(user, filled(3, 12));
      Array d(user, filled(4, 12));
      std::vector<hvd_request> gather{job.request(rank, HVD_ALLGATHER, "a", HVD_FLOAT32, rows, a.data(), nullptr),
                                      job.request(rank, HVD_ALLGATHER, "b", HVD_FLOAT32, rows, b.data(), nullptr)};
      std::vector<hvd_request> scatter{
          job.request(rank, HVD_REDUCESCATTER, "c", HVD_FLOAT32, whole, c.data(), nullptr),
          job.request(rank, HVD_REDUCESCATTER, "d", HVD_FLOAT32, whole, d.data(), nullptr)};
      Engine& e = job.engine(rank);
      int64_t handle = 0;
      auto check = [&](const std::vector<hvd_request>& requests, size_t count, float first, float second) {
        faults += !job.run(rank, requests, &handle).ok();
        for (int i = 0; i < 2; ++i) {
          Array out(user, filled(0, count));
          e.copy_output(handle, i, out.data(), user.stream);
          faults += !all(out.read(), i ? second : first);
        }
        e.release(handle);
      };
      check(gather, 9, 1, 2);
      check(scatter, 6, 6, 8);
    });
    const Case c(way);
    CHECK_EQ(faults.load(), 0L);
  }
}

// Sets of their own, and host tensors beside those on GPUs.
TEST(process_sets_and_host_tensors) {
  for (const char* way : {"direct", "NCCL", "host", "auto"}) {
    GpuJob job({4}, way);
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      Engine& e = job.engine(rank);
      const int32_t even = e.add_process_set({0, 2});
      const int32_t odd = e.add_process_set({1, 3});
      for (int turn = 0; turn < 5; ++turn) {
        Array a(job.user(rank), filled(float(rank)));
        std::vector<float> host(10, 1.f);
        const std::vector<int64_t> ten{10};
        hvd_request on_gpu = job.request(rank, HVD_ALLREDUCE, "gpu", HVD_FLOAT32, kShape, a.data(), a.data());
        hvd_request on_host = job.request(rank, HVD_ALLREDUCE, "host", HVD_FLOAT32, ten, host.data(), host.data());
        on_host.device = -1;
        on_gpu.process_set = rank % 2 ? odd : even;
        const int64_t waiting = e.submit(&on_host, 1, 0, nullptr, nullptr, nullptr);
        faults += !job.run(rank, on_gpu).ok();
        faults += !e.wait(waiting, 30.0).ok() || host[3] != 4.f;
        e.release(waiting);
        faults += !all(a.read(), rank % 2 ? 4 : 2);
        on_gpu.process_set = 0;
        faults += !job.run(rank, on_gpu).ok();
        faults += !all(a.read(), 12);
      }
      e.remove_process_set(even);
    });
    const Case c(way);
    CHECK_EQ(faults.load(), 0L);
  }
}

// A set goes while one member's GPU has not come to its last collective: that ends as if the set were there, and other
// sets are not disturbed.
TEST(a_set_is_removed_while_its_work_is_under_way) {
  for (const char* way : {"direct", "by stream", "NCCL"}) {
    const bool by_stream = std::string(way) == "by stream";
    standin_set_mps(!by_stream);
    standin_share_gpus(by_stream);
    {
      GpuJob job({3}, by_stream ? "direct" : way);
      std::atomic<long> faults{0};
      std::atomic<int> removed{0};
      job.each([&](int rank) {
        Engine& e = job.engine(rank);
        User& user = job.user(rank);
        const int32_t pair = e.add_process_set({0, 1});
        Array a(user, filled(float(rank + 1)));
        Array word(user, numbers(std::vector<uint32_t>{0}));
        user.synchronize();  // another stream writes it next
        if (rank == 1) HVD_CUDA(stream_wait_value, user.stream, cuda::address_of(word.data()), 1, cuda::kWaitAtLeast);
        hvd_request r = job.request(rank, HVD_ALLREDUCE, "t", HVD_FLOAT32, kShape, a.data(), a.data());
        r.process_set = pair;
        if (rank < 2) faults += !job.run(rank, r).ok();  // it is on the device
        e.remove_process_set(pair);
        ++removed;
        if (rank == 1) {
          while (removed < 3) usleep(1000);
          User elsewhere(user.device);
          HVD_CUDA(stream_write_value, elsewhere.stream, cuda::address_of(word.data()), 1, 0);
          elsewhere.synchronize();
        }
        faults += !all(a.read(), 3);  // rank 2 has its own
        r.process_set = 0;
        for (int turn = 0; turn < 2; ++turn) {
          a.write(filled(1));
          faults += !job.run(rank, r).ok();
          faults += !all(a.read(), 3);
        }
      });
      const Case c(way);
      CHECK_EQ(faults.load(), 0L);
    }
    standin_set_mps(1);
    standin_share_gpus(0);
  }
}

// A rank with several GPUs, and one that changes to another: a communicator for each choice of them.
TEST(several_gpus_a_rank) {
  for (const char* way : kWays) {
    GpuJob job({2}, way);
    std::atomic<long> faults{0};
    job.each([&](int rank) {
      User other(4 + rank);
      Array a(job.user(rank), filled(1));
      Array b(other, filled(2));
      for (int i = 0; i < 6; ++i) {
        Array& array = i % 2 ? b : a;
        hvd_request r = job.request(rank, HVD_ALLREDUCE, "t", HVD_FLOAT32, kShape, array.data(), array.data());
        if (i % 2) {
          r.device = other.device;
          r.stream = other.stream;
        }
        Engine& e = job.engine(rank);
        const int64_t handle = e.submit(&r, 1, 0, nullptr, nullptr, nullptr);
        faults += !e.wait_stream(handle, r.stream, 30.0).ok();
        e.release(handle);
      }
      faults += !all(a.read(), 8) || !all(b.read(), 16);
    });
    const Case c(way);
    CHECK_EQ(faults.load(), 0L);
  }
}

TEST(joined_ranks_send_zeros) {
  for (const char* way : {"direct", "NCCL", "host"})
    for (size_t count : {size_t(1000), size_t(400000)}) {
      GpuJob job({3}, way);
      std::atomic<long> faults{0};
      const std::vector<int64_t> shape{int64_t(count)};
      job.each([&](int rank) {
        Array a(job.user(rank), filled(1, count));
        Engine& e = job.engine(rank);
        // Rank 2 never has a GPU tensor of its own before it joins.
        for (int step = 0; rank != 2 && step < (rank + 1) * 3; ++step) {
          a.write(filled(1, count));
          const hvd_request r = job.request(rank, HVD_ALLREDUCE, "t", HVD_FLOAT32, shape, a.data(), a.data());
          faults += !job.run(rank, r).ok();
          faults += !all(a.read(), step < 3 ? 2 : 1);
        }
        hvd_request join = job.request(rank, HVD_JOIN, "join", HVD_FLOAT32, shape, nullptr, nullptr);
        const int64_t handle = e.submit(&join, 1, 0, nullptr, nullptr, nullptr);
        faults += !e.wait(handle, 30.0).ok();
        faults += e.find(handle)->entries[0].value != 1;
        e.release(handle);
      });
      const Case c(way, count);
      CHECK_EQ(faults.load(), 0L);
    }
}

TEST(many_threads_submit_at_once) {
  GpuJob job({2}, "direct");
  std::atomic<long> faults{0};
  job.each([&](int rank) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        User user(rank);  // a stream of its own
        for (int i = 0; i < 15; ++i) {
          Array a(user, filled(float(i + t), 500));
          const std::vector<int64_t> shape{500};
          const std::string name = "t" + std::to_string(t);
          hvd_request r = job.request(rank, HVD_ALLREDUCE, name.c_str(), HVD_FLOAT32, shape, a.data(), a.data());
          r.stream = user.stream;
          Engine& e = job.engine(rank);
          const int64_t handle = e.submit(&r, 1, 0, nullptr, nullptr, nullptr);
          faults += !e.wait_stream(handle, user.stream, 30.0).ok();
          e.release(handle);
          faults += !all(a.read(), 2.f * float(i + t));
        }
      });
    for (std::thread& t : threads) t.join();
  });
  CHECK_EQ(faults.load(), 0L);
}
