// SPDX-License-Identifier: Apache-2.0
#include "glue/tensorflow/collective_kernels.h"

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

struct Kernel {
  int32_t kind;
  bool grouped;
  bool on_cpu;
  Attributes attributes;
  Forwarding forwarding;
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

// One run of a node: holds the tensors and the completion until the engine is done.
class Run {
 public:
  Run(Kernel& kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done)
      : kernel_(kernel), context_(context), done_(new DeferredDone(done)) {}

  void start() {
    DeferredDone* done = done_;  // this object may be gone once the request is submitted
    bool deferred = done->can_defer();
    Status status;
    if (!prepare(status) || !submit(status)) {
      tf.TF_OpKernelContext_Failure(context_, status);
      finish();
    }
    if (!deferred) done->block_until_run();
  }

 private:
  bool prepare(Status& status) {
    const bool join = kernel_.kind == HVD_JOIN;
    const int count = join ? 0 : kernel_.kind == HVD_ALLTOALL ? 1 : tf.TF_NumInputs(context_);
    for (int i = 0; i < count; ++i)
      if (!prepare_tensor(i, count, status)) return false;
    if (kernel_.kind == HVD_ALLTOALL && !read_splits(status)) return false;
    return true;
  }

  bool prepare_tensor(int index, int count, Status& status) {
    Tensor tensor = input(context_, index, status);
    if (!status.ok()) return false;
    const int type = tf.TF_TensorType(tensor.get());
    shapes_.push_back(shape_of(tensor.get()));
    types_.push_back(type);
    names_.push_back(kernel_.grouped ? member_name(kernel_.attributes.name, index, count) : kernel_.attributes.name);
    const Shape& shape = shapes_.back();
    if (kernel_.kind == HVD_REDUCESCATTER && shape.empty()) {
      status.set(kInvalidArgument,
                 std::string(kernel_.grouped ? "HorovodGroupedReducescatter" : "HorovodReducescatter") +
                     " does not support scalar inputs.");
      return false;
    }
    Tensor output;
    const bool root = kernel_.kind == HVD_BROADCAST && kernel_.attributes.root_rank == hvd_rank();
    if (root) {  // its value is already right: pass the tensor on
      tf.TF_SetOutput(context_, index, tensor.get(), status);
    } else if (kernel_.kind == HVD_ALLREDUCE || kernel_.kind == HVD_BROADCAST) {
      const bool large = is_large(type, shape.data(), static_cast<int32_t>(shape.size()));
      if (large && kernel_.forwarding.hopeless()) {
        output = kept_output(context_, index, type, shape.data(), static_cast<int32_t>(shape.size()), status);
      } else {
        // Our own reference would keep TensorFlow from giving us the input's memory for the output.
        tensor.reset();
        int from = -1;
        output.reset(tf.TF_ForwardInputOrAllocateOutput(context_, &index, 1, index, shape.data(),
                                                        static_cast<int>(shape.size()), &from, status));
        if (status.ok()) tensor = input(context_, index, status);
        if (large) kernel_.forwarding.saw(from >= 0);
      }
    }
    inputs_.push_back(std::move(tensor));
    outputs_.push_back(std::move(output));
    return status.ok();
  }

  bool read_splits(Status& status) {
    Tensor splits = input(context_, 1, status);
    if (!status.ok()) return false;
    if (tf.TF_NumDims(splits.get()) > 1) {
      status.set(kInvalidArgument, "alltoall expects a 1D splits tensor");
      return false;
    }
    const auto* rows = static_cast<const int32_t*>(tf.TF_TensorData(splits.get()));
    splits_.assign(rows, rows + tf.TF_TensorElementCount(splits.get()));
    return true;
  }

  bool submit(Status& status) {
    std::vector<hvd_request> requests(kernel_.kind == HVD_JOIN ? 1 : inputs_.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      hvd_request& request = requests[i];
      request = kernel_.attributes.request(kernel_.kind);
      request.name = "join.noname";
      if (kernel_.kind == HVD_JOIN) continue;
      request.name = names_[i].c_str();
      request.dtype = engine_dtype(types_[i]);
      request.input = data_of(inputs_[i].get());
      request.output = outputs_[i]                     ? data_of(outputs_[i].get())
                       : kernel_.kind == HVD_BROADCAST ? data_of(inputs_[i].get())
                                                       : nullptr;
      request.shape = shapes_[i].data();
      request.ndim = static_cast<int32_t>(shapes_[i].size());
      request.splits = splits_.empty() ? nullptr : splits_.data();
      request.n_splits = static_cast<int32_t>(splits_.size());
    }
    uint32_t flags = HVD_AUTO_RELEASE;
    if (kernel_.grouped) flags |= HVD_GROUP;
    int64_t handle = hvd_submit(requests.data(), static_cast<int32_t>(requests.size()), flags, on_alloc, on_done, this);
    if (handle > 0) return true;
    status.set(error_code(static_cast<int32_t>(handle)), hvd_last_error());
    return false;
  }

  bool is_large(int type, const int64_t* shape, int32_t ndim) const {
    return kernel_.on_cpu && bytes_of(type, shape, ndim) >= HVD_LARGE_OUTPUT;
  }

  Tensor allocate(int index, int type, const int64_t* shape, int32_t ndim) {
    Status status;
    Tensor output =
        is_large(type, shape, ndim)
            ? kept_output(context_, index, type, shape, ndim, status)
            : Tensor(tf.TF_AllocateOutput(context_, index, type, shape, ndim, bytes_of(type, shape, ndim), status));
    if (!status.ok()) tf.TF_OpKernelContext_Failure(context_, status);
    return status.ok() ? std::move(output) : Tensor();
  }

  static void* on_alloc(void* self, int32_t index, const int64_t* shape, int32_t ndim) {
    auto* run = static_cast<Run*>(self);
    auto i = static_cast<size_t>(index);
    run->outputs_[i] = run->allocate(index, run->types_[i], shape, ndim);
    return run->outputs_[i] ? data_of(run->outputs_[i].get()) : nullptr;
  }

  static void on_done(void* self, int64_t handle, int32_t status, const char* error) {
    auto* run = static_cast<Run*>(self);
    if (status == HVD_OK) {
      run->collect(handle);
    } else {
      Status failure;
      failure.set(error_code(status), error && *error ? error : "the collective failed");
      tf.TF_OpKernelContext_Failure(run->context_, failure);
    }
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
    if (kernel_.kind == HVD_ALLREDUCE || kernel_.kind == HVD_BROADCAST) return;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs_[i]) continue;
      if (hvd_result(handle, static_cast<int32_t>(i), &result) != HVD_OK) return fail_collect();
      outputs_[i] = allocate(static_cast<int>(i), types_[i], result.shape, result.ndim);
      if (!outputs_[i]) return;
      size_t bytes = bytes_of(types_[i], result.shape, result.ndim);
      if (bytes) memcpy(tf.TF_TensorData(outputs_[i].get()), result.data, bytes);
    }
    if (kernel_.kind == HVD_ALLTOALL) {
      if (hvd_result(handle, 0, &result) != HVD_OK) return fail_collect();
      const int64_t count = result.n_splits;
      Tensor received = allocate(1, kInt32, &count, 1);
      auto* rows = received ? static_cast<int32_t*>(tf.TF_TensorData(received.get())) : nullptr;
      for (int64_t i = 0; rows && i < count; ++i) rows[i] = static_cast<int32_t>(result.splits[i]);
    }
  }

  void fail_collect() {
    Status failure;
    failure.set(kInternal, hvd_last_error());
    tf.TF_OpKernelContext_Failure(context_, failure);
  }

  // Drops the tensors before TensorFlow continues, so that it may reuse their memory.
  void finish() {
    DeferredDone* done = done_;
    delete this;
    done->run();
  }

  Kernel& kernel_;
  TF_OpKernelContext* context_;
  DeferredDone* done_;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<Shape> shapes_;
  std::vector<int> types_;
  std::vector<std::string> names_;
  std::vector<int64_t> splits_;
};

}  // namespace

template <int32_t kind, bool grouped, bool on_cpu>
void* create_collective(TF_OpKernelConstruction* construction) {
  auto* kernel = new Kernel{kind, grouped, on_cpu, {}, {}};
  kernel->attributes.read(construction);
  return kernel;
}

#define HVD_TF_CREATE(kind, grouped)                                               \
  template void* create_collective<kind, grouped, true>(TF_OpKernelConstruction*); \
  template void* create_collective<kind, grouped, false>(TF_OpKernelConstruction*);
HVD_TF_CREATE(HVD_ALLREDUCE, false)
HVD_TF_CREATE(HVD_ALLREDUCE, true)
HVD_TF_CREATE(HVD_ALLGATHER, false)
HVD_TF_CREATE(HVD_ALLGATHER, true)
HVD_TF_CREATE(HVD_BROADCAST, false)
HVD_TF_CREATE(HVD_BROADCAST, true)
HVD_TF_CREATE(HVD_ALLTOALL, false)
HVD_TF_CREATE(HVD_REDUCESCATTER, false)
HVD_TF_CREATE(HVD_REDUCESCATTER, true)
HVD_TF_CREATE(HVD_JOIN, false)
#undef HVD_TF_CREATE

void compute_collective(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  (new Run(*static_cast<Kernel*>(kernel), context, done))->start();
}

void delete_collective(void* kernel) { delete static_cast<Kernel*>(kernel); }

}  // namespace horovod::tensorflow
