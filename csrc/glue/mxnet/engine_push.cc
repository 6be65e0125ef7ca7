/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives as operations of MXNet's own dependency engine.
 *
 * MXNet runs an operation when everything that writes its inputs is done, and holds back everything that reads
 * its outputs until it reports completion. So a collective is pushed like any other operation: when its turn comes
 * it is submitted to our engine and the MXNet thread goes on; our completion tells MXNet. Nothing ever waits.
 *
 * MXNet's entry points are found at run time in the library that is already loaded; nothing of it is needed to
 * compile. hvd_mxnet_load must have succeeded before hvd_mxnet_push.
 */
#include <dlfcn.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "horovod/core.h"

namespace hvd::mxnet {
namespace {

/* What MXNet passes to an asynchronous operation. The object is gone when the operation returns: copy it. */
struct OnComplete {
  void (*callback)(void* engine, void* parameter, const void* error);
  void* engine;
  void* parameter;
};

/* MXNet copies the error it is given as a dmlc::Error, which is a std::runtime_error and nothing more. */
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Context {
  int32_t device_type, device_id;
};
constexpr Context kCpu{1, 0};
constexpr int kCpuPrioritized = 3; /* FnProperty: the queue that honours priorities */

struct Api {
  int (*push)(void (*run)(void*, void*, void*), void* job, void (*destroy)(void*), const void* context, void** reads,
              int n_reads, void** writes, int n_writes, const void* property, int priority, const char* name,
              bool wait);
  int (*data)(void* array, void** address);
  int (*detach)(void* array, void** duplicate);
  int (*free)(void* array);
  const char* (*last_error)();
};
Api api;

/* A second handle to an array, so that Python may drop its own before the operation runs. */
class ArrayRef {
 public:
  explicit ArrayRef(void* handle) { api.detach(handle, &handle_); }
  ArrayRef(ArrayRef&& other) noexcept : handle_(other.handle_) { other.handle_ = nullptr; }
  ArrayRef(const ArrayRef&) = delete;
  ArrayRef& operator=(const ArrayRef&) = delete;
  ~ArrayRef() {
    if (handle_) api.free(handle_);
  }
  void* data() const {
    void* address = nullptr;
    return handle_ && api.data(handle_, &address) == 0 ? address : nullptr;
  }

 private:
  void* handle_ = nullptr;
};

struct Tensor {
  hvd_request request;
  std::string name;
  std::vector<int64_t> shape;
  ArrayRef input, output;
};

struct Job {
  std::vector<Tensor> tensors;
  OnComplete on_complete{};
};

void complete(const OnComplete& on_complete, int32_t status, const char* text) {
  if (status == HVD_OK) {
    on_complete.callback(on_complete.engine, on_complete.parameter, nullptr);
  } else {
    const Failure failure(text && *text ? text : "the operation failed");
    on_complete.callback(on_complete.engine, on_complete.parameter, &failure);
  }
}

/* Completing an operation destroys its job, so nothing of it is touched afterwards. */
void on_done(void* context, int64_t, int32_t status, const char* error) {
  complete(static_cast<Job*>(context)->on_complete, status, error);
}

void run(void*, void* on_complete, void* context) {
  auto* job = static_cast<Job*>(context);
  job->on_complete = *static_cast<OnComplete*>(on_complete);
  std::vector<hvd_request> requests;
  for (Tensor& tensor : job->tensors) {
    tensor.request.name = tensor.name.c_str();
    tensor.request.shape = tensor.shape.data();
    tensor.request.input = tensor.input.data();
    tensor.request.output = tensor.output.data();
    requests.push_back(tensor.request);
  }
  const int64_t handle =
      hvd_submit(requests.data(), static_cast<int32_t>(requests.size()), HVD_AUTO_RELEASE, nullptr, on_done, job);
  if (handle < 0) {
    const std::string text = hvd_last_error();
    complete(job->on_complete, static_cast<int32_t>(handle), text.c_str());
  }
}

void destroy(void* context) { delete static_cast<Job*>(context); }

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace
}  // namespace hvd::mxnet

using namespace hvd::mxnet;

/* Finds MXNet's entry points in the library at `path`, which Python has loaded. 0, or -1 if one is missing. */
extern "C" HVD_API int32_t hvd_mxnet_load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (!library) return -1;
  const bool complete = find(library, "MXEnginePushAsyncND", &api.push) &&
                        find(library, "MXNDArrayGetData", &api.data) && find(library, "MXNDArrayDetach", &api.detach) &&
                        find(library, "MXNDArrayFree", &api.free) && find(library, "MXGetLastError", &api.last_error);
  return complete ? 0 : -1;
}

/* Pushes one collective over n tensors (several make a group). The requests carry everything but the addresses,
 * which are those of the NDArrays when the operation runs; inputs[i] == outputs[i] means in place.
 * Returns NULL, or MXNet's reason for refusing. */
extern "C" HVD_API const char* hvd_mxnet_push(const hvd_request* requests, int32_t n, void** inputs, void** outputs,
                                              int32_t priority, const char* name) {
  auto job = std::make_unique<Job>();
  std::vector<void*> reads;
  std::vector<void*> writes(outputs, outputs + n);
  for (int32_t i = 0; i < n; ++i) {
    const hvd_request& request = requests[i];
    job->tensors.push_back(Tensor{request, request.name,
                                  std::vector<int64_t>(request.shape, request.shape + request.ndim),
                                  ArrayRef(inputs[i]), ArrayRef(outputs[i])});
    if (inputs[i] != outputs[i]) reads.push_back(inputs[i]);
  }
  const int status = api.push(run, job.get(), destroy, &kCpu, reads.data(), static_cast<int>(reads.size()),
                              writes.data(), n, &kCpuPrioritized, priority, name, false);
  job.release(); /* MXNet destroys it, also when it refuses */
  return status == 0 ? nullptr : api.last_error();
}
