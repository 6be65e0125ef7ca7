// SPDX-License-Identifier: Apache-2.0
#include "glue/tensorflow/enqueue_wait.h"

#include <mutex>
#include <unordered_map>
#include <utility>

#include "glue/tensorflow/attributes.h"
#include "glue/tensorflow/deferred_done.h"
#include "glue/tensorflow/tensors.h"
#include "horovod/core.h"

namespace horovod::tensorflow {
namespace {

// What a ticket stands for: both tensors stay alive until somebody has waited.
struct Pending {
  Tensor input;
  Tensor output;
};

std::mutex mutex;
std::unordered_map<int64_t, Pending>& pending() {  // leaked: kernels may run while the process exits
  static auto* table = new std::unordered_map<int64_t, Pending>;
  return *table;
}

Pending take(int64_t ticket) {
  std::lock_guard<std::mutex> lock(mutex);
  auto found = pending().find(ticket);
  if (found == pending().end()) return {};
  Pending result = std::move(found->second);
  pending().erase(found);
  return result;
}

}  // namespace

void* create_enqueue(TF_OpKernelConstruction* construction) {
  auto* attributes = new Attributes;
  attributes->read(construction);
  return attributes;
}

void delete_enqueue(void* kernel) { delete static_cast<Attributes*>(kernel); }

void compute_enqueue(void* kernel, TF_OpKernelContext* context) {
  const auto& attributes = *static_cast<const Attributes*>(kernel);
  Status status;
  Pending tensors;
  tensors.input = input(context, 0, status);
  Tensor ticket;
  if (status.ok()) ticket.reset(tf.TF_AllocateOutput(context, 0, kInt64, nullptr, 0, sizeof(int64_t), status));
  if (!status.ok()) return tf.TF_OpKernelContext_Failure(context, status);

  const int type = tf.TF_TensorType(tensors.input.get());
  const Shape shape = shape_of(tensors.input.get());
  tensors.output.reset(tf.TF_AllocateTensor(type, shape.data(), static_cast<int>(shape.size()),
                                            tf.TF_TensorByteSize(tensors.input.get())));
  hvd_request request = attributes.request(HVD_ALLREDUCE);
  request.name = attributes.name.c_str();
  request.dtype = engine_dtype(type);
  request.input = data_of(tensors.input.get());
  request.output = data_of(tensors.output.get());
  request.shape = shape.data();
  request.ndim = static_cast<int32_t>(shape.size());
  int64_t handle = hvd_submit(&request, 1, 0, nullptr, nullptr, nullptr);
  if (handle > 0) {
    *static_cast<int64_t*>(tf.TF_TensorData(ticket.get())) = handle;
    std::lock_guard<std::mutex> lock(mutex);
    pending().emplace(handle, std::move(tensors));
  } else {
    status.set(error_code(static_cast<int32_t>(handle)), hvd_last_error());
    tf.TF_OpKernelContext_Failure(context, status);
  }
}

void compute_wait(void*, TF_OpKernelContext* context) {
  Status failure;  // the first one; all tickets are waited for and given back in any case
  const int count = tf.TF_NumInputs(context);
  for (int i = 0; i < count; ++i) {
    Status status;
    Tensor ticket = input(context, i, status);
    if (!status.ok()) return tf.TF_OpKernelContext_Failure(context, status);
    const int64_t handle = *static_cast<const int64_t*>(tf.TF_TensorData(ticket.get()));
    Pending tensors = take(handle);
    int32_t result = tensors.output ? hvd_wait(handle, -1.0) : static_cast<int32_t>(HVD_INVALID);
    if (result == HVD_OK) tf.TF_SetOutput(context, i, tensors.output.get(), status);
    else status.set(error_code(result), tensors.output ? hvd_last_error() : "this ticket was used before");
    hvd_release(handle);
    if (!status.ok() && failure.ok()) failure.set(tf.TF_GetCode(status), tf.TF_Message(status));
  }
  if (!failure.ok()) tf.TF_OpKernelContext_Failure(context, failure);
}

void compute_probe(void*, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  DeferredDone deferred(done);
  const bool can_defer = deferred.can_defer();
  Status status;
  Tensor answer(tf.TF_AllocateOutput(context, 0, kInt32, nullptr, 0, sizeof(int32_t), status));
  if (status.ok()) *static_cast<int32_t*>(tf.TF_TensorData(answer.get())) = can_defer;
  if (!status.ok()) tf.TF_OpKernelContext_Failure(context, status);
  answer.reset();  // before TensorFlow is told that the node is done
  deferred.run();
  if (!can_defer) deferred.block_until_run();
}

}  // namespace horovod::tensorflow
