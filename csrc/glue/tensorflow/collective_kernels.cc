// SPDX-License-Identifier: Apache-2.0
#include "glue/tensorflow/collective_kernels.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "glue/tensorflow/attributes.h"
#include "glue/tensorflow/deferred_done.h"
#include "glue/tensorflow/tensors.h"
#include "horovod/core.h"

namespace horovod::tensorflow {
namespace {

// Whether a node gets the memory of its input for its output. TensorFlow decides that at every run, by who else holds
// the input, which for a node is nearly always the same; to ask means to get fresh memory where the answer is no.
class Forwarding {
 public:
  bool hopeless() const { return refused_.load(std::memory_order_relaxed) >= kEnough; }
  void saw(bool forwarded) {
    refused_.store(forwarded ? 0 : refused_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

 private:
  static constexpr int kEnough = 3;  // in a row
  std::atomic<int> refused_{0};
};

class Run;

struct Kernel {
  int32_t kind;
  Form form;
  bool on_cpu;
  Attributes attributes;
  Forwarding forwarding;
  std::atomic<Run*> spare{nullptr};  // of an earlier run, with its memory
};

size_t bytes_of(int type, const int64_t* shape, int32_t ndim) {
  size_t bytes = element_size(type);
  for (int32_t i = 0; i < ndim; ++i) bytes *= static_cast<size_t>(shape[i]);
  return bytes;
}

// In memory that the engine keeps for this: fresh memory costs as much as a reduction.
Tensor kept_output(TF_OpKernelContext* context, int index, int type, const int64_t* shape, int32_t ndim,
                   Status& status) {
  const size_t bytes = bytes_of(type, shape, ndim);
  void* memory = hvd_allocate(static_cast<int64_t>(bytes));
  if (!memory) {
    status.set(kResourceExhausted, "no memory for an output of " + std::to_string(bytes) + " bytes");
    return {};
  }
  auto free = [](void* data, size_t, void*) { hvd_free(data); };
  Tensor output(tf.TF_NewTensor(type, shape, ndim, memory, bytes, free, nullptr));
  tf.TF_SetOutput(context, index, output.get(), status);
  return output;
}

// One run of a node, until the engine is done. It keeps addresses: TensorFlow holds the inputs and the outputs of an
// asynchronous kernel until that says it is done. A handle given back by the thread that made it is cheap, and so is
// a run that is used again: memory that one thread allocates and another frees is the larger part of a small run.
class Run {
 public:
  static Run* of(Kernel& kernel) {
    Run* spare = kernel.spare.exchange(nullptr, std::memory_order_acquire);
    return spare ? spare : new Run(kernel);
  }

  void start(TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* callback) {
    context_ = context;
    done_ = DeferredDone(callback);
    DeferredDone done = done_;  // this object may be in another's hands once the request is submitted
    if (!prepare() || !submit()) {
      tf.TF_OpKernelContext_Failure(context_, status_);
      finish();
    }
    if (!done.can_defer()) done.block_until_run();
  }

 private:
  struct Member {
    std::string name;
    Shape shape;
    int type = 0;
    void* input = nullptr;
    void* output = nullptr;  // null: not there yet
  };

  explicit Run(Kernel& kernel) : kernel_(kernel) {}

  bool prepare() {
    const bool join = kernel_.kind == HVD_JOIN;
    const auto count = static_cast<size_t>(join ? 0 : kernel_.kind == HVD_ALLTOALL ? 1 : tf.TF_NumInputs(context_));
    if (members_.size() != count) name_members(count);
    for (size_t i = 0; i < count; ++i)
      if (!prepare_member(static_cast<int>(i), members_[i])) return false;
    return kernel_.kind != HVD_ALLTOALL || read_splits();
  }

  void name_members(size_t count) {
    members_.resize(count);
    for (size_t i = 0; i < count; ++i) members_[i].name = name_of(static_cast<int>(i), static_cast<int>(count));
  }

  std::string name_of(int index, int count) const {
    const Attributes& attributes = kernel_.attributes;
    switch (kernel_.form) {
      case Form::kGroup: return member_name(attributes.name, index, count);
      case Form::kApart: return attributes.names.at(static_cast<size_t>(index));
      default: return attributes.name;
    }
  }

  bool prepare_member(int index, Member& member) {
    Tensor tensor = input(context_, index, status_);
    if (!status_.ok()) return false;
    member.type = tf.TF_TensorType(tensor.get());
    member.input = data_of(tensor.get());
    member.output = nullptr;
    read_shape(tensor.get(), member.shape);
    if (kernel_.kind == HVD_REDUCESCATTER && member.shape.empty()) {
      status_.set(kInvalidArgument, std::string(grouped() ? "HorovodGroupedReducescatter" : "HorovodReducescatter") +
                                        " does not support scalar inputs.");
      return false;
    }
    const bool root = kernel_.kind == HVD_BROADCAST && kernel_.attributes.root_rank == hvd_rank();
    if (root) {  // its value is already right: pass the tensor on
      tf.TF_SetOutput(context_, index, tensor.get(), status_);
      member.output = member.input;
    } else if (kernel_.kind == HVD_ALLREDUCE || kernel_.kind == HVD_BROADCAST) {
      tensor.reset();  // our own reference would keep TensorFlow from giving us the input's memory for the output
      member.output = output_like_input(index, member);
    }
    return status_.ok();
  }

  void* output_like_input(int index, const Member& member) {
    const int64_t* shape = member.shape.data();
    const auto ndim = static_cast<int32_t>(member.shape.size());
    const bool large = is_large(member.type, shape, ndim);
    Tensor output;
    if (large && kernel_.forwarding.hopeless()) {
      output = kept_output(context_, index, member.type, shape, ndim, status_);
    } else {
      int from = -1;
      output.reset(tf.TF_ForwardInputOrAllocateOutput(context_, &index, 1, index, shape, ndim, &from, status_));
      if (large) kernel_.forwarding.saw(from >= 0);
    }
    return status_.ok() ? data_of(output.get()) : nullptr;
  }

  bool read_splits() {
    Tensor splits = input(context_, 1, status_);
    if (!status_.ok()) return false;
    if (tf.TF_NumDims(splits.get()) > 1) {
      status_.set(kInvalidArgument, "alltoall expects a 1D splits tensor");
      return false;
    }
    const auto* rows = static_cast<const int32_t*>(tf.TF_TensorData(splits.get()));
    splits_.assign(rows, rows + tf.TF_TensorElementCount(splits.get()));
    return true;
  }

  bool submit() {
    requests_.resize(std::max<size_t>(members_.size(), 1));
    requests_[0] = kernel_.attributes.request(kernel_.kind);
    requests_[0].name = "join.noname";
    for (size_t i = 0; i < members_.size(); ++i) describe(members_[i], requests_[i]);
    uint32_t flags = HVD_AUTO_RELEASE;
    if (grouped()) flags |= HVD_GROUP;
    if (kernel_.form == Form::kApart) flags |= HVD_APART;
    int64_t handle =
        hvd_submit(requests_.data(), static_cast<int32_t>(requests_.size()), flags, on_alloc, on_done, this);
    if (handle > 0) return true;
    status_.set(error_code(static_cast<int32_t>(handle)), hvd_last_error());
    return false;
  }

  void describe(const Member& member, hvd_request& request) const {
    request = kernel_.attributes.request(kernel_.kind);
    request.name = member.name.c_str();
    request.dtype = engine_dtype(member.type);
    request.input = member.input;
    request.output = member.output;
    request.shape = member.shape.data();
    request.ndim = static_cast<int32_t>(member.shape.size());
    request.splits = splits_.empty() ? nullptr : splits_.data();
    request.n_splits = static_cast<int32_t>(splits_.size());
  }

  bool grouped() const { return kernel_.form == Form::kGroup; }

  bool is_large(int type, const int64_t* shape, int32_t ndim) const {
    return kernel_.on_cpu && bytes_of(type, shape, ndim) >= HVD_LARGE_OUTPUT;
  }

  Tensor allocate(int index, int type, const int64_t* shape, int32_t ndim) {
    Tensor output =
        is_large(type, shape, ndim)
            ? kept_output(context_, index, type, shape, ndim, status_)
            : Tensor(tf.TF_AllocateOutput(context_, index, type, shape, ndim, bytes_of(type, shape, ndim), status_));
    if (!status_.ok()) tf.TF_OpKernelContext_Failure(context_, status_);
    return status_.ok() ? std::move(output) : Tensor();
  }

  static void* on_alloc(void* self, int32_t index, const int64_t* shape, int32_t ndim) {
    auto* run = static_cast<Run*>(self);
    Member& member = run->members_[static_cast<size_t>(index)];
    Tensor output = run->allocate(index, member.type, shape, ndim);
    member.output = output ? data_of(output.get()) : nullptr;
    return member.output;
  }

  static void on_done(void* self, int64_t handle, int32_t status, const char* error) {
    auto* run = static_cast<Run*>(self);
    if (status == HVD_OK) run->collect(handle);
    else run->fail(error_code(status), error && *error ? error : "the collective failed");
    run->finish();
  }

  // Outputs that are not in place yet: join's value, alltoall's received splits, and what the engine kept.
  void collect(int64_t handle) {
    hvd_output result{};
    if (kernel_.kind == HVD_JOIN) {
      hvd_result(handle, 0, &result);
      if (Tensor value = allocate(0, kInt32, nullptr, 0))
        *static_cast<int32_t*>(tf.TF_TensorData(value.get())) = static_cast<int32_t>(result.value);
      return;
    }
    for (size_t i = 0; i < members_.size(); ++i) {
      if (members_[i].output) continue;
      if (hvd_result(handle, static_cast<int32_t>(i), &result) != HVD_OK) return fail(kInternal, hvd_last_error());
      Tensor output = allocate(static_cast<int>(i), members_[i].type, result.shape, result.ndim);
      if (!output) return;
      size_t bytes = bytes_of(members_[i].type, result.shape, result.ndim);
      if (bytes) memcpy(tf.TF_TensorData(output.get()), result.data, bytes);
    }
    if (kernel_.kind == HVD_ALLTOALL) {
      if (hvd_result(handle, 0, &result) != HVD_OK) return fail(kInternal, hvd_last_error());
      const int64_t count = result.n_splits;
      Tensor received = allocate(1, kInt32, &count, 1);
      auto* rows = received ? static_cast<int32_t*>(tf.TF_TensorData(received.get())) : nullptr;
      for (int64_t i = 0; rows && i < count; ++i) rows[i] = static_cast<int32_t>(result.splits[i]);
    }
  }

  void fail(int code, const char* text) {
    status_.set(code, text);
    tf.TF_OpKernelContext_Failure(context_, status_);
  }

  // Leaves this object to the next run before TensorFlow continues, which may then delete the kernel.
  void finish() {
    DeferredDone done = done_;
    Run* none = nullptr;
    if (!status_.ok() || !kernel_.spare.compare_exchange_strong(none, this, std::memory_order_release)) delete this;
    done.run();
  }

  Kernel& kernel_;
  TF_OpKernelContext* context_ = nullptr;
  DeferredDone done_;
  Status status_;
  std::vector<Member> members_;
  std::vector<int64_t> splits_;
  std::vector<hvd_request> requests_;  // kept for their memory
};

}  // namespace

template <int32_t kind, Form form, bool on_cpu>
void* create_collective(TF_OpKernelConstruction* construction) {
  auto* kernel = new Kernel{kind, form, on_cpu, {}, {}, {}};
  kernel->attributes.read(construction);
  return kernel;
}

#define HVD_TF_CREATE(kind, form)                                                     \
  template void* create_collective<kind, Form::form, true>(TF_OpKernelConstruction*); \
  template void* create_collective<kind, Form::form, false>(TF_OpKernelConstruction*);
HVD_TF_CREATE(HVD_ALLREDUCE, kOne)
HVD_TF_CREATE(HVD_ALLREDUCE, kGroup)
HVD_TF_CREATE(HVD_ALLREDUCE, kApart)
HVD_TF_CREATE(HVD_ALLGATHER, kOne)
HVD_TF_CREATE(HVD_ALLGATHER, kGroup)
HVD_TF_CREATE(HVD_BROADCAST, kOne)
HVD_TF_CREATE(HVD_BROADCAST, kGroup)
HVD_TF_CREATE(HVD_ALLTOALL, kOne)
HVD_TF_CREATE(HVD_REDUCESCATTER, kOne)
HVD_TF_CREATE(HVD_REDUCESCATTER, kGroup)
HVD_TF_CREATE(HVD_JOIN, kOne)
#undef HVD_TF_CREATE

void compute_collective(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  Run::of(*static_cast<Kernel*>(kernel))->start(context, done);
}

void delete_collective(void* kernel) {
  auto* old = static_cast<Kernel*>(kernel);
  delete old->spare.load(std::memory_order_acquire);
  delete old;
}

}  // namespace horovod::tensorflow
