// SPDX-License-Identifier: Apache-2.0
//
// The XLA handler against an XLA that takes its call frame back as soon as the handler returns.
#include "glue/jax/ffi_abi.h"
#include "horovod/core.h"
#include "tests/check.h"
#include "tests/describe_world.h"

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

extern "C" hvd::jax::Error* hvd_jax_collective(hvd::jax::CallFrame* frame);

using namespace hvd::jax;
using namespace hvd::testing;

namespace {

// Opens once.
class Gate {
 public:
  void open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// What a future of this XLA comes to.
struct Outcome {
  Gate known;
  std::string error;
};

struct FakeXla {
  Api api{};
  FakeXla() {
    api.struct_size = sizeof api;
    api.error_create = [](ErrorCreateArgs* args) {
      return reinterpret_cast<hvd::jax::Error*>(new std::string(args->message));
    };
    api.future_create = [](FutureArgs* args) -> hvd::jax::Error* {
      args->future = reinterpret_cast<Future*>(new Outcome);
      return nullptr;
    };
    api.future_set_available = [](FutureArgs* args) -> hvd::jax::Error* {
      reinterpret_cast<Outcome*>(args->future)->known.open();
      return nullptr;
    };
    api.future_set_error = [](FutureErrorArgs* args) -> hvd::jax::Error* {
      std::unique_ptr<std::string> text(reinterpret_cast<std::string*>(args->error));
      auto* outcome = reinterpret_cast<Outcome*>(args->future);
      outcome->error = *text;
      outcome->known.open();
      return nullptr;
    };
  }
};

// A frame of one operand and one result of int32, on the heap, so that a sanitizer sees what is used after it.
struct Frame {
  int64_t in_dims[1], out_dims[1];
  Buffer in{}, out{};
  void* arguments[1] = {&in};
  void* results[1] = {&out};
  int types[1] = {0};
  int32_t kind;
  Scalar kind_value{kS32, &kind};
  std::string name_text = "frame";
  ByteSpan kind_key{"kind", 4}, name_key{"name", 4}, name_value{name_text.data(), name_text.size()};
  ByteSpan* keys[2] = {&kind_key, &name_key};
  void* values[2] = {&kind_value, &name_value};
  int attribute_types[2] = {kScalar, kString};
  CallFrame frame{};

  Frame(const Api& api, int32_t k, int32_t* input, int64_t count, int32_t* output) : kind(k) {
    in_dims[0] = out_dims[0] = count;
    in = {sizeof in, nullptr, kS32, input, 1, in_dims};
    out = {sizeof out, nullptr, kS32, output, 1, out_dims};
    frame.struct_size = sizeof frame;
    frame.api = &api;
    frame.stage = kExecute;
    frame.arguments = {sizeof frame.arguments, nullptr, 1, types, arguments};
    frame.results = {sizeof frame.results, nullptr, 1, types, results};
    frame.attributes = {sizeof frame.attributes, nullptr, 2, attribute_types, keys, values};
  }
  // As good as freed, also where no sanitizer looks.
  ~Frame() {
    std::memset(static_cast<void*>(&out), 0x5a, sizeof out);
    std::memset(out_dims, 0x5a, sizeof out_dims);
  }
};

}  // namespace

TEST(the_call_frame_may_be_gone_when_the_engine_is_done) {
  const std::vector<int> host_of{0};
  const std::vector<std::string> host_names{"here"};
  std::vector<const char*> names;
  const hvd_world world = describe_world(0, host_of, host_names, &names);
  CHECK_EQ(hvd_start(&world, nullptr, 0), int(HVD_OK));
  FakeXla xla;
  for (int32_t kind : {HVD_ALLREDUCE, HVD_ALLGATHER, HVD_ALLTOALL, HVD_REDUCESCATTER, HVD_BROADCAST}) {
    const Case c("kind", kind);
    // The engine's thread is kept busy, so that the collective surely runs after the frame is gone.
    Gate blocked, unblock;
    std::pair<Gate*, Gate*> gates{&blocked, &unblock};
    hvd_request barrier{};
    barrier.struct_size = sizeof barrier;
    barrier.kind = HVD_BARRIER;
    barrier.name = "keeps the thread busy";
    barrier.device = -1;
    const int64_t busy = hvd_submit(
        &barrier, 1, HVD_AUTO_RELEASE, nullptr,
        [](void* context, int64_t, int32_t, const char*) {
          auto* both = static_cast<std::pair<Gate*, Gate*>*>(context);
          both->first->open();
          both->second->wait();
        },
        &gates);
    CHECK(busy > 0);
    blocked.wait();

    int32_t input[3] = {1, 2, 3}, output[3] = {0, 0, 0};
    auto frame = std::make_unique<Frame>(xla.api, kind, input, 3, output);
    CHECK(hvd_jax_collective(&frame->frame) == nullptr);
    std::unique_ptr<Outcome> outcome(reinterpret_cast<Outcome*>(frame->frame.future));
    frame.reset();
    unblock.open();
    outcome->known.wait();
    CHECK_EQ(outcome->error, "");
    for (int i = 0; i < 3; ++i) CHECK_EQ(output[i], input[i]);
  }
  CHECK_EQ(hvd_stop(nullptr), int(HVD_OK));
}
