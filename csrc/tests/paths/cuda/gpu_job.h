// SPDX-License-Identifier: Apache-2.0
//
// A job of several engines in one process whose tensors lie on stand-in GPUs, a GPU a rank, with a stream of the user's
// for each rank.
#ifndef HOROVOD_TESTS_PATHS_CUDA_GPU_JOB_H_
#define HOROVOD_TESTS_PATHS_CUDA_GPU_JOB_H_

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "paths/cuda/device.h"
#include "tests/engine/job.h"
#include "tests/standin/control.h"
#include "util/dtype.h"

namespace hvd::testing {

// Claims of places on stand-in GPUs (paths/cuda/room.h) concern nobody but this test.
struct OwnFolder {
  OwnFolder() { setenv("CUDA_MPS_PIPE_DIRECTORY", mkdtemp(name), 1); }
  ~OwnFolder() { std::filesystem::remove_all(name); }
  char name[32] = "/tmp/hvd-standin-XXXXXX";
};
inline const OwnFolder own_folder;

inline Settings gpu_settings(const std::string& operations) {
  Settings s;
  s.gpu_operations = operations;
  s.cuda_library = STANDIN_CUDA;
  s.nccl_library = STANDIN_NCCL;
  return s;
}

// One rank's GPU and stream, as a framework would have them.
class User {
 public:
  explicit User(int device) : device(device) {
    std::string why;
    if (!cuda::load_driver(STANDIN_CUDA, &why)) std::abort();
    HVD_CUDA(primary_retain, &context_, device);
    HVD_CUDA(context_push, context_);
    HVD_CUDA(stream_create, &stream, cuda::kStreamNonBlocking, 0);
    cuda::Context popped = nullptr;
    HVD_CUDA(context_pop, &popped);
  }
  ~User() {
    cuda::driver().stream_synchronize(stream);
    cuda::driver().stream_destroy(stream);
    cuda::driver().primary_release(device);
  }
  User(const User&) = delete;
  User& operator=(const User&) = delete;

  template <class Body>
  auto in_context(Body body) {
    HVD_CUDA(context_push, context_);
    struct Pop {
      ~Pop() {
        cuda::Context popped = nullptr;
        cuda::driver().context_pop(&popped);
      }
    } pop;
    return body();
  }
  void synchronize() { HVD_CUDA(stream_synchronize, stream); }

  const int device;
  cuda::Stream stream = nullptr;

 private:
  cuda::Context context_ = nullptr;
};

// Bytes on a GPU, written and read in the order of the user's stream.
class Array {
 public:
  Array(User& user, std::vector<char> values, size_t skew = 0) : user_(user), bytes_(values.size()), skew_(skew) {
    user_.in_context([&] { HVD_CUDA(memory_alloc, &memory_, bytes_ + skew_ + 1); });
    write(std::move(values));
  }
  ~Array() {
    user_.synchronize();
    user_.in_context([&] { cuda::driver().memory_free(memory_); });
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  void* data() const { return reinterpret_cast<void*>(memory_ + skew_); }
  size_t bytes() const { return bytes_; }
  void write(std::vector<char> values) {
    sources_.push_back(std::move(values));  // read late
    HVD_CUDA(copy_async, memory_ + skew_, cuda::address_of(sources_.back().data()), bytes_, user_.stream);
  }
  // Waits for the user's stream, and for nothing else.
  std::vector<char> read() const {
    std::vector<char> out(bytes_);
    HVD_CUDA(copy_async, reinterpret_cast<cuda::Address>(out.data()), memory_ + skew_, bytes_, user_.stream);
    user_.synchronize();
    return out;
  }

 private:
  User& user_;
  const size_t bytes_;
  const size_t skew_;
  cuda::Address memory_ = 0;
  std::list<std::vector<char>> sources_;
};

class GpuJob : public Job {
 public:
  explicit GpuJob(const std::vector<int>& locals, const std::string& operations = "auto")
      : GpuJob(locals, gpu_settings(operations)) {}
  GpuJob(const std::vector<int>& locals, const Settings& settings) : Job(locals, settings) {
    for (int r = 0; r < size(); ++r) users_.push_back(std::make_unique<User>(r));
  }
  User& user(int rank) { return *users_[size_t(rank)]; }

  // A request over memory of a rank's GPU. The shape must outlive it.
  hvd_request request(int rank, int kind, const char* name, int dtype, const std::vector<int64_t>& shape,
                      const void* input, void* output) {
    hvd_request r{};
    r.struct_size = sizeof r;
    r.kind = kind;
    r.name = name;
    r.input = input;
    r.output = output;
    r.shape = shape.data();
    r.ndim = int32_t(shape.size());
    r.dtype = dtype;
    r.reduce_op = HVD_SUM;
    r.prescale = r.postscale = 1.0;
    r.device = user(rank).device;
    r.stream = user(rank).stream;
    return r;
  }
  // As hvd_call.
  Status call(int rank, const hvd_request& r) {
    Engine& e = engine(rank);
    if (e.call_quickly(&r, 1)) return {};
    int64_t handle = e.submit(&r, 1, HVD_WILL_WAIT | HVD_IN_STREAM, nullptr, nullptr, nullptr);
    Status status = r.device >= 0 ? e.wait_stream(handle, r.stream, 60.0) : e.wait(handle, 60.0);
    e.release(handle);
    return status;
  }
  // Submits and lets the user's stream wait for it.
  Status run(int rank, const hvd_request& r, int64_t* kept = nullptr) { return run(rank, std::vector{r}, kept); }
  Status run(int rank, const std::vector<hvd_request>& requests, int64_t* kept = nullptr) {
    Engine& e = engine(rank);
    int64_t handle = e.submit(requests.data(), int32_t(requests.size()), 0, nullptr, nullptr, nullptr);
    Status status = e.wait_stream(handle, user(rank).stream, 60.0);
    if (kept) *kept = handle;
    else e.release(handle);
    return status;
  }

 private:
  std::vector<std::unique_ptr<User>> users_;
};

// Small numbers that every type holds, and that do not overflow when a few are added or multiplied.
template <class T>
std::vector<char> numbers(const std::vector<T>& values) {
  std::vector<char> bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline std::vector<char> filled(float value, size_t count = 1000) { return numbers(std::vector<float>(count, value)); }
inline bool all(const std::vector<char>& bytes, float value) {
  return bytes == filled(value, bytes.size() / sizeof(float));
}

inline const std::vector<int64_t> kShape{1000};  // of what `filled` makes
inline const char* const kWays[] = {"direct", "NCCL", "host"};

// Puts everything back to how a healthy machine is.
struct Machine {
  explicit Machine(bool by_stream = false) {
    standin_set_mps(!by_stream);
    standin_share_gpus(by_stream);
  }
  ~Machine() {
    standin_nccl_hang(0);
    standin_nccl_fail("", 0, "");
    standin_hold("", 0);
    standin_set_mps(1);
    standin_share_gpus(0);
    standin_pause(0);
  }
};

struct Way {
  const char* operations;
  bool by_stream;  // ranks share a GPU and take turns on it
};
inline const Way kAllWays[] = {{"direct", false}, {"direct", true}, {"NCCL", false}, {"host", false}};

// Whether a device comes to rest.
inline bool idle(int device) {
  auto d = cuda::Device::get(device);
  bool all = true;
  for (int lane : {0, cuda::kDownLane, cuda::kUpLane}) all &= d->drained(d->stream(lane), 10.0);
  return all;
}

}  // namespace hvd::testing

#endif  // HOROVOD_TESTS_PATHS_CUDA_GPU_JOB_H_
