/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd_jax_collective, hvd_jax_collective_cuda: the XLA handlers behind every jitted collective, on CPUs and GPUs.
 *
 *   operands: token, tensor 0 .. n-1        results: token, output 0 .. n-1
 *   attributes: kind, name, reduce_op, root, process_set, prescale, postscale, splits
 *
 * On CPUs the handler submits the tensors as one (atomic) group and returns at once with a future that is
 * completed when the engine is done, so that no XLA thread ever waits for another rank. XLA keeps the memory of
 * operands and results alive until then, but not the call frame that describes them: what is needed later is copied.
 * The token only orders the calls; it has no memory.
 */
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "completion_thread.h"
#include "ffi_abi.h"
#include "horovod/core.h"

namespace hvd::jax {
namespace {

/* Everything a submission needs after the handler has returned. */
struct Call {
  struct Output {
    void* data;
    std::vector<int64_t> shape;
  };
  const Api* api;
  Future* future;
  std::vector<Output> outputs;
};

Error* make_error(const Api* api, int32_t status, const char* text) {
  int code = kUnknown;
  if (status == HVD_INVALID) code = kInvalidArgument;
  if (status == HVD_PRECONDITION) code = kFailedPrecondition;
  if (status == HVD_ABORTED) code = kAborted;
  ErrorCreateArgs args{sizeof(args), nullptr, text, code};
  return api->error_create(&args);
}

int32_t to_hvd_dtype(int dtype) {
  switch (dtype) {
    case kPred: return HVD_BOOL;
    case kS8: return HVD_INT8;
    case kS16: return HVD_INT16;
    case kS32: return HVD_INT32;
    case kS64: return HVD_INT64;
    case kU8: return HVD_UINT8;
    case kU16: return HVD_UINT16;
    case kU32: return HVD_UINT32;
    case kU64: return HVD_UINT64;
    case kF16: return HVD_FLOAT16;
    case kF32: return HVD_FLOAT32;
    case kF64: return HVD_FLOAT64;
    case kBF16: return HVD_BFLOAT16;
    default: return -1;
  }
}

/* Attributes by name; jax sends numpy scalars, so the types are fixed by the Python side. */
class AttributeReader {
 public:
  explicit AttributeReader(const Attributes& attributes) : attributes_(attributes) {}

  int32_t int32(const char* name) const {
    const auto* scalar = static_cast<const Scalar*>(find(name, kScalar));
    return scalar ? *static_cast<const int32_t*>(scalar->value) : 0;
  }
  double float64(const char* name) const {
    const auto* scalar = static_cast<const Scalar*>(find(name, kScalar));
    return scalar ? *static_cast<const double*>(scalar->value) : 1.0;
  }
  std::string text(const char* name) const {
    const auto* span = static_cast<const ByteSpan*>(find(name, kString));
    return span ? std::string(span->data, span->size) : std::string();
  }
  std::vector<int64_t> int64s(const char* name) const {
    const auto* array = static_cast<const Array*>(find(name, kArray));
    if (!array) return {};
    const auto* values = static_cast<const int64_t*>(array->data);
    return std::vector<int64_t>(values, values + array->size);
  }

 private:
  const void* find(const char* name, int type) const {
    const size_t length = std::strlen(name);
    for (int64_t i = 0; i < attributes_.size; ++i) {
      const ByteSpan& key = *attributes_.names[i];
      if (attributes_.types[i] == type && key.size == length && !std::memcmp(key.data, name, length))
        return attributes_.values[i];
    }
    return nullptr;
  }
  const Attributes& attributes_;
};

/* XLA asks once, at registration, which version of the interface we speak. */
bool answer_metadata_query(CallFrame* frame) {
  for (Extension* extension = frame->extensions; extension; extension = extension->next) {
    if (extension->type != kMetadataExtension) continue;
    Metadata* metadata = reinterpret_cast<MetadataExtension*>(extension)->metadata;
    metadata->api_version.major = kApiMajor;
    metadata->api_version.minor = kApiMinor;
    metadata->traits = 0;
    return true;
  }
  return false;
}

std::vector<Buffer*> tensors_of(const Arguments& arguments) {
  std::vector<Buffer*> tensors;
  for (int64_t i = 0; i < arguments.size; ++i) {
    auto* buffer = static_cast<Buffer*>(arguments.buffers[i]);
    if (buffer->dtype != kToken) tensors.push_back(buffer);
  }
  return tensors;
}

/* A compiled program has fixed shapes: an output that comes out differently (ranks with different first
 * dimensions) fails the operation instead of overrunning the buffer. */
void* place_output(void* context, int32_t index, const int64_t* shape, int32_t ndim) {
  const Call::Output& output = static_cast<Call*>(context)->outputs[index];
  return std::vector<int64_t>(shape, shape + ndim) == output.shape ? output.data : nullptr;
}

void finish(Call* call, int32_t status, const std::string& text) {
  const Api* api = call->api;
  if (status == HVD_OK) {
    FutureArgs args{sizeof(args), nullptr, call->future};
    api->future_set_available(&args);
  } else {
    FutureErrorArgs args{sizeof(args), nullptr, call->future, make_error(api, status, text.c_str())};
    api->future_set_error(&args);
  }
  delete call;
}

void on_done(void* context, int64_t, int32_t status, const char* error) {
  auto* call = static_cast<Call*>(context);
  std::string text = status == HVD_OK ? "" : error ? error : "the operation failed";
  CompletionThread::instance().post([call, status, text = std::move(text)] { finish(call, status, text); });
}

/* The tensors of a call as requests to the engine, and what they point into. */
struct Requests {
  std::vector<std::string> names;
  std::vector<int64_t> splits;
  std::vector<hvd_request> items;
  bool sized_by_peers = false;
  const char* problem = nullptr;

  hvd_alloc_fn alloc() const { return sized_by_peers ? place_output : nullptr; }
  int32_t size() const { return static_cast<int32_t>(items.size()); }
};

/* device, stream: as in hvd_request. */
std::unique_ptr<Requests> describe(CallFrame* frame, Call* call, int32_t device, void* stream) {
  const AttributeReader attributes(frame->attributes);
  const std::vector<Buffer*> inputs = tensors_of(frame->arguments);
  const std::string name = attributes.text("name");
  const int32_t kind = attributes.int32("kind");
  const size_t n = inputs.size();

  call->api = frame->api;
  for (const Buffer* output : tensors_of(frame->results))
    call->outputs.push_back({output->data, {output->dims, output->dims + output->rank}});
  auto made = std::make_unique<Requests>();
  made->sized_by_peers = kind == HVD_ALLGATHER || kind == HVD_ALLTOALL || kind == HVD_REDUCESCATTER;
  made->splits = attributes.int64s("splits");
  made->names.resize(n);
  made->items.resize(n);
  if (call->outputs.size() != n) made->problem = "horovod.jax: a call needs one result for each operand";
  for (size_t i = 0; i < n && !made->problem; ++i) {
    made->names[i] = n == 1 ? name : name + "_" + std::to_string(i + 1) + "of" + std::to_string(n);
    hvd_request& request = made->items[i];
    request = hvd_request{};
    request.struct_size = sizeof(hvd_request);
    request.kind = kind;
    request.name = made->names[i].c_str();
    request.input = inputs[i]->data;
    request.output = made->sized_by_peers ? nullptr : call->outputs[i].data;
    request.shape = inputs[i]->dims;
    request.ndim = static_cast<int32_t>(inputs[i]->rank);
    request.dtype = to_hvd_dtype(inputs[i]->dtype);
    request.splits = made->splits.empty() ? nullptr : made->splits.data();
    request.n_splits = static_cast<int32_t>(made->splits.size());
    request.prescale = attributes.float64("prescale");
    request.postscale = attributes.float64("postscale");
    request.reduce_op = attributes.int32("reduce_op");
    request.root = attributes.int32("root");
    request.process_set = attributes.int32("process_set");
    request.device = device;
    request.stream = stream;
    if (request.dtype < 0) made->problem = "horovod.jax: complex and 8-bit floating types are not supported";
  }
  return made;
}

Error* submit(CallFrame* frame) {
  const Api* api = frame->api;
  if (api->struct_size < offsetof(Api, future_set_error) + sizeof(void*))
    return make_error(api, HVD_ABORTED, "horovod.jax needs a jax with asynchronous FFI calls (0.6 or newer)");
  auto call = std::make_unique<Call>();
  const auto requests = describe(frame, call.get(), -1, nullptr);
  if (requests->problem) return make_error(api, HVD_INVALID, requests->problem);

  FutureArgs create{sizeof(create), nullptr, nullptr};
  if (Error* error = api->future_create(&create)) return error;
  call->future = create.future;
  frame->future = create.future;

  /* From here on the future reports everything: XLA waits for it as soon as it has seen it. */
  Call* pending = call.release();
  const int64_t handle =
      hvd_submit(requests->items.data(), requests->size(), HVD_AUTO_RELEASE, requests->alloc(), on_done, pending);
  if (handle < 0) {
    const std::string text = hvd_last_error();
    finish(pending, static_cast<int32_t>(handle), text);
  }
  return nullptr;
}

/* On a GPU: the work is put in the order of XLA's stream. The thread that gives work to that stream waits until this is
 * enqueued, which it is as soon as all ranks have come here; nobody waits for the GPU. */
Error* enqueue(CallFrame* frame) {
  const Api* api = frame->api;
  if (api->struct_size < offsetof(Api, device_get) + sizeof(void*))
    return make_error(api, HVD_ABORTED,
                      "horovod.jax needs a newer jax to compile collectives for GPUs; call them outside of jit");
  StreamArgs stream{sizeof(stream), nullptr, frame->context, nullptr};
  if (Error* error = api->stream_get(&stream)) return error;
  DeviceArgs device{sizeof(device), nullptr, frame->context, 0};
  if (Error* error = api->device_get(&device)) return error;
  Call call{};
  const auto requests = describe(frame, &call, device.device, stream.stream);
  if (requests->problem) return make_error(api, HVD_INVALID, requests->problem);
  const int64_t handle = hvd_submit(requests->items.data(), requests->size(), HVD_WILL_WAIT | HVD_IN_STREAM,
                                    requests->alloc(), nullptr, &call);
  if (handle < 0) return make_error(api, static_cast<int32_t>(handle), hvd_last_error());
  const int32_t status = hvd_wait_stream(handle, stream.stream, -1);
  Error* error = status == HVD_OK ? nullptr : make_error(api, status, hvd_last_error());
  hvd_release(handle);
  return error;
}

}  // namespace
}  // namespace hvd::jax

extern "C" HVD_API hvd::jax::Error* hvd_jax_collective(hvd::jax::CallFrame* frame) {
  if (hvd::jax::answer_metadata_query(frame)) return nullptr;
  if (frame->stage != hvd::jax::kExecute) return nullptr;
  return hvd::jax::submit(frame);
}

extern "C" HVD_API hvd::jax::Error* hvd_jax_collective_cuda(hvd::jax::CallFrame* frame) {
  if (hvd::jax::answer_metadata_query(frame)) return nullptr;
  if (frame->stage != hvd::jax::kExecute) return nullptr;
  return hvd::jax::enqueue(frame);
}
