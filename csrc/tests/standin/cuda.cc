// SPDX-License-Identifier: Apache-2.0
// A stand-in for the CUDA driver: the same symbols over host memory, with the same rules about contexts. Kernels are
// those of kernels.cu, compiled as C++.
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "paths/cuda/driver_abi.h"
#include "tests/standin/control.h"
#include "tests/standin/kernel_host.h"
#include "tests/standin/memory.h"
#include "tests/standin/streams.h"

using namespace hvd::cuda;
using namespace hvd::standin;

struct CUctx_st {
  int device = 0;
  std::atomic<int> references{0};
  std::shared_ptr<StreamState> default_stream;
};
struct CUstream_st {
  CUctx_st* context;
  std::shared_ptr<StreamState> state;
};
struct CUevent_st {
  CUctx_st* context;
  bool timed;
  std::mutex mutex;
  std::shared_ptr<Moment> last;  // nullptr: never recorded

  std::shared_ptr<Moment> moment() {
    std::lock_guard<std::mutex> lock(mutex);
    return last;
  }
};
struct CUmod_st {
  std::string text;
};
struct CUfunc_st {
  std::string name;
  size_t bytes;
  Kernel kernel;
};

namespace hvd::standin {

thread_local Index block_index;
thread_local Index grid_size;

namespace {

enum : Result {
  kNotInitialized = 3,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kMapFailed = 205,
  kInvalidPtx = 218,
  kInvalidHandle = 400,
  kNotFound = 500,
};

std::map<std::string, CUfunc_st>& kernels() {
  static auto* all = new std::map<std::string, CUfunc_st>;
  return *all;
}

const char* environment(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value ? value : fallback;
}

struct Machine {
  std::mutex mutex;
  bool started = false;
  std::vector<CUctx_st> contexts;
  Memory memory;
  std::atomic<bool> mps{true};
  std::atomic<bool> shared{false};  // all devices are one GPU
  std::atomic<unsigned> seed{1};
  std::map<std::string, int> calls;
  struct Failure {
    int code = 0;
    int after = 0;
  };
  std::map<std::string, Failure> failures;
  std::string held_call;
  int held = 0;
  std::condition_variable changed;

  Machine() : contexts(static_cast<size_t>(std::atoi(environment("STANDIN_GPUS", "8")))) {
    for (size_t i = 0; i < contexts.size(); ++i) contexts[i].device = static_cast<int>(i);
    mps = std::atoi(environment("STANDIN_MPS", "1")) != 0;
    tempo().delay_us = std::atoi(environment("STANDIN_DELAY_US", "50"));
    if (const char* bytes = std::getenv("STANDIN_MEMORY")) memory.limit = std::strtoull(bytes, nullptr, 10);
    std::string fail = environment("STANDIN_FAIL", "");
    size_t first = fail.find(':');
    if (first != std::string::npos) {
      size_t second = fail.find(':', first + 1);
      failures[fail.substr(0, first)] = {std::atoi(fail.c_str() + first + 1),
                                         second == std::string::npos ? 0 : std::atoi(fail.c_str() + second + 1)};
    }
  }

  // Counts a call; what it has to fail with, or 0.
  Result enter(const char* call) {
    std::unique_lock<std::mutex> lock(mutex);
    ++calls[call];
    if (held_call == call) {
      ++held;
      changed.wait(lock, [&] { return held_call != call; });
      --held;
    }
    auto it = failures.find(call);
    if (it == failures.end() || !it->second.code) return kSuccess;
    if (it->second.after-- > 0) return kSuccess;
    return std::exchange(it->second.code, 0);
  }
};

Machine& machine() {
  static auto* one = new Machine;
  return *one;
}

thread_local std::vector<CUctx_st*> current;

CUctx_st* context() { return current.empty() ? nullptr : current.back(); }

// Of a handle, or the default stream of the current context.
StreamState* stream_of(Stream stream, CUctx_st** owner = nullptr) {
  CUctx_st* c = stream ? stream->context : context();
  if (!c) return nullptr;
  if (owner) *owner = c;
  if (stream) return stream->state.get();
  std::lock_guard<std::mutex> lock(machine().mutex);
  if (!c->default_stream) c->default_stream = std::make_shared<StreamState>(machine().seed++);
  return c->default_stream.get();
}

bool valid(int device) { return device >= 0 && device < static_cast<int>(machine().contexts.size()); }

void* pointer(Address a) { return reinterpret_cast<void*>(a); }

}  // namespace

void register_kernel(const char* name, size_t argument_bytes, Kernel kernel) {
  kernels()[name] = {name, argument_bytes, kernel};
}

}  // namespace hvd::standin

#define CALL(name) \
  if (Result failure = machine().enter(name)) return failure
#define CALL_IN_CONTEXT(name) \
  CALL(name);                 \
  if (!context()) return kInvalidContext

extern "C" {

// ---- control ----
void standin_pause(int paused) { tempo().paused = paused != 0; }
void standin_fail(const char* call, int code, int after) {
  std::lock_guard<std::mutex> lock(machine().mutex);
  machine().failures[call] = {code, after};
}
void standin_hold(const char* call, int held) {
  std::lock_guard<std::mutex> lock(machine().mutex);
  machine().held_call = held ? call : "";
  machine().changed.notify_all();
}
int standin_held(void) {
  std::lock_guard<std::mutex> lock(machine().mutex);
  return machine().held;
}
void standin_set_mps(int enabled) { machine().mps = enabled != 0; }
void standin_share_gpus(int shared) { machine().shared = shared != 0; }
void standin_set_delay(int microseconds) { tempo().delay_us = microseconds; }
int standin_calls(const char* call) {
  std::lock_guard<std::mutex> lock(machine().mutex);
  return machine().calls[call];
}
unsigned long long standin_allocated(void) { return machine().memory.allocated(); }
int standin_current_device(void) { return context() ? context()->device : -1; }

// ---- driver and devices ----
Result cuInit(unsigned) {
  CALL("cuInit");
  if (machine().contexts.empty()) return 100;
  machine().started = true;
  return kSuccess;
}
Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
Result cuGetErrorName(Result result, const char** text) {
  *text = result == kOutOfMemory    ? "CUDA_ERROR_OUT_OF_MEMORY"
          : result == kInvalidValue ? "CUDA_ERROR_INVALID_VALUE"
          : result == 719           ? "CUDA_ERROR_LAUNCH_FAILED"
          : result == kNotReady     ? "CUDA_ERROR_NOT_READY"
                                    : "CUDA_ERROR_OF_THE_STANDIN";
  return kSuccess;
}
Result cuGetErrorString(Result result, const char** text) {
  *text = result == kOutOfMemory ? "out of memory" : result == 719 ? "unspecified launch failure" : "a failure";
  return kSuccess;
}
Result cuDeviceGetCount(int* count) {
  if (!machine().started) return kNotInitialized;
  *count = static_cast<int>(machine().contexts.size());
  return kSuccess;
}
Result cuDeviceGet(int* device, int ordinal) {
  if (!valid(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}
Result cuDeviceGetName(char* name, int length, int device) {
  if (!valid(device)) return kInvalidDevice;
  std::strncpy(name, "Stand-in GPU", static_cast<size_t>(length));
  return kSuccess;
}
Result cuDeviceGetUuid(Uuid* uuid, int device) {
  if (!valid(device)) return kInvalidDevice;
  *uuid = {};
  uuid->bytes[0] = static_cast<char>(machine().shared ? 1 : device + 1);
  return kSuccess;
}
Result cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (!valid(device)) return kInvalidDevice;
  switch (attribute) {
    case kMultiprocessors: *value = 4; return kSuccess;
    case kMpsEnabled: *value = machine().mps; return kSuccess;
    default: return kInvalidValue;
  }
}
Result cuDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!valid(device) || !valid(peer)) return kInvalidDevice;
  *can = device != peer;
  return kSuccess;
}

// ---- contexts ----
Result cuDevicePrimaryCtxRetain(Context* c, int device) {
  CALL("cuDevicePrimaryCtxRetain");
  if (!valid(device)) return kInvalidDevice;
  *c = &machine().contexts[static_cast<size_t>(device)];
  ++(*c)->references;
  return kSuccess;
}
Result cuDevicePrimaryCtxRelease_v2(int device) {
  if (!valid(device)) return kInvalidDevice;
  --machine().contexts[static_cast<size_t>(device)].references;
  return kSuccess;
}
Result cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  if (!valid(device)) return kInvalidDevice;
  *flags = 0;
  *active = machine().contexts[static_cast<size_t>(device)].references > 0;
  return kSuccess;
}
Result cuCtxGetCurrent(Context* c) {
  *c = context();
  return kSuccess;
}
Result cuCtxGetDevice(DeviceNumber* device) {
  *device = standin_current_device();
  if (*device < 0) return kInvalidContext;
  return kSuccess;
}
Result cuCtxPushCurrent_v2(Context c) {
  CALL("cuCtxPushCurrent_v2");
  if (!c || c->references <= 0) return kInvalidContext;
  current.push_back(c);
  return kSuccess;
}
Result cuCtxPopCurrent_v2(Context* c) {
  if (current.empty()) return kInvalidContext;
  *c = current.back();
  current.pop_back();
  return kSuccess;
}
Result cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (!context()) return kInvalidContext;
  *least = 0;
  *greatest = -5;
  return kSuccess;
}

// ---- memory ----
Result cuMemGetInfo_v2(size_t* available, size_t* total) {
  if (!context()) return kInvalidContext;
  *total = machine().memory.limit;
  *available = *total - machine().memory.allocated();
  return kSuccess;
}
Result cuMemAlloc_v2(Address* memory, size_t bytes) {
  CALL_IN_CONTEXT("cuMemAlloc_v2");
  if (!bytes) return kInvalidValue;
  void* made = machine().memory.allocate(bytes);
  *memory = reinterpret_cast<Address>(made);
  return made ? kSuccess : kOutOfMemory;
}
Result cuMemFree_v2(Address memory) {
  CALL_IN_CONTEXT("cuMemFree_v2");
  return machine().memory.free(pointer(memory)) ? kSuccess : kInvalidValue;
}
Result cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  CALL_IN_CONTEXT("cuMemHostAlloc");
  *memory = std::aligned_alloc(4096, (bytes + 4095) & ~size_t{4095});
  return *memory ? kSuccess : kOutOfMemory;
}
Result cuMemFreeHost(void* memory) {
  CALL("cuMemFreeHost");
  std::free(memory);
  return kSuccess;
}
Result cuMemHostGetDevicePointer_v2(Address* address, void* memory, unsigned) {
  *address = reinterpret_cast<Address>(memory);
  return kSuccess;
}
Result cuIpcGetMemHandle(IpcHandle* handle, Address memory) {
  CALL_IN_CONTEXT("cuIpcGetMemHandle");
  MemoryHandle shared{};
  if (!machine().memory.share(pointer(memory), &shared)) return kInvalidValue;
  *handle = {};
  std::memcpy(handle->bytes, &shared, sizeof shared);
  return kSuccess;
}
Result cuIpcOpenMemHandle_v2(Address* memory, IpcHandle handle, unsigned) {
  CALL_IN_CONTEXT("cuIpcOpenMemHandle_v2");
  MemoryHandle shared{};
  std::memcpy(&shared, handle.bytes, sizeof shared);
  *memory = reinterpret_cast<Address>(machine().memory.open(shared));
  return *memory ? Result{kSuccess} : Result{kMapFailed};
}
Result cuIpcCloseMemHandle(Address memory) {
  CALL_IN_CONTEXT("cuIpcCloseMemHandle");
  return machine().memory.close(pointer(memory)) ? kSuccess : kInvalidValue;
}

// ---- streams and events ----
Result cuStreamCreateWithPriority(Stream* stream, unsigned, int) {
  CALL_IN_CONTEXT("cuStreamCreateWithPriority");
  *stream = new CUstream_st{context(), std::make_shared<StreamState>(machine().seed++)};
  return kSuccess;
}
Result cuStreamDestroy_v2(Stream stream) {
  CALL("cuStreamDestroy_v2");
  delete stream;
  return kSuccess;
}
Result cuStreamQuery(Stream stream) {
  CALL("cuStreamQuery");
  StreamState* state = stream_of(stream);
  if (!state) return kInvalidContext;
  return state->idle() ? kSuccess : kNotReady;
}
Result cuStreamSynchronize(Stream stream) {
  CALL("cuStreamSynchronize");
  StreamState* state = stream_of(stream);
  if (!state) return kInvalidContext;
  state->drain();
  return kSuccess;
}
Result cuStreamIsCapturing(Stream stream, int* status) {
  if (!stream_of(stream)) return kInvalidContext;
  *status = kCaptureNone;
  return kSuccess;
}
Result cuEventCreate(RawEvent* event, unsigned flags) {
  CALL_IN_CONTEXT("cuEventCreate");
  if (flags != kEventDisableTiming && flags != kEventTimed) return kInvalidValue;
  *event = new CUevent_st{};
  (*event)->context = context();
  (*event)->timed = flags == kEventTimed;
  return kSuccess;
}
Result cuEventDestroy_v2(RawEvent event) {
  CALL("cuEventDestroy_v2");
  delete event;
  return kSuccess;
}
Result cuEventRecord(RawEvent event, Stream stream) {
  CALL("cuEventRecord");
  CUctx_st* owner = nullptr;
  StreamState* state = stream_of(stream, &owner);
  if (!state) return kInvalidContext;
  if (owner != event->context) return kInvalidHandle;
  auto moment = std::make_shared<Moment>();
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    event->last = moment;
  }
  state->add([moment] { moment->reach(); });
  return kSuccess;
}
Result cuEventQuery(RawEvent event) {
  CALL("cuEventQuery");
  auto moment = event->moment();
  return !moment || moment->reached() ? kSuccess : kNotReady;
}
Result cuEventElapsedTime(float* milliseconds, RawEvent from, RawEvent to) {
  CALL("cuEventElapsedTime");
  auto first = from->moment();
  auto second = to->moment();
  if (!from->timed || !to->timed || !first || !second) return kInvalidHandle;
  if (!first->reached() || !second->reached()) return kNotReady;
  *milliseconds = static_cast<float>((second->at() - first->at()) * 1e3);
  return kSuccess;
}
Result cuStreamWaitEvent(Stream stream, RawEvent event, unsigned) {
  CALL("cuStreamWaitEvent");
  StreamState* state = stream_of(stream);
  if (!state) return kInvalidContext;
  if (auto moment = event->moment()) state->add([moment] { moment->wait(); });
  return kSuccess;
}
Result cuStreamWriteValue32_v2(Stream stream, Address address, uint32_t value, unsigned) {
  CALL("cuStreamWriteValue32_v2");
  StreamState* state = stream_of(stream);
  if (!state) return kInvalidContext;
  state->add([=] { __atomic_store_n(static_cast<uint32_t*>(pointer(address)), value, __ATOMIC_RELEASE); });
  return kSuccess;
}
Result cuStreamWaitValue32_v2(Stream stream, Address address, uint32_t value, unsigned) {
  CALL("cuStreamWaitValue32_v2");
  StreamState* state = stream_of(stream);
  if (!state) return kInvalidContext;
  state->add([=] {
    const auto* word = static_cast<const uint32_t*>(pointer(address));
    while (static_cast<int32_t>(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) < 0) usleep(20);
  });
  return kSuccess;
}
Result cuMemcpyAsync(Address to, Address from, size_t bytes, Stream stream) {
  CALL("cuMemcpyAsync");
  StreamState* state = stream_of(stream);
  if (!state) return kInvalidContext;
  state->add([=] {
    if (bytes) std::memmove(pointer(to), pointer(from), bytes);
  });
  return kSuccess;
}
Result cuMemsetD8Async(Address to, unsigned char value, size_t bytes, Stream stream) {
  CALL("cuMemsetD8Async");
  StreamState* state = stream_of(stream);
  if (!state) return kInvalidContext;
  state->add([=] { std::memset(pointer(to), value, bytes); });
  return kSuccess;
}
Result cuLaunchHostFunc(Stream stream, void (*body)(void*), void* argument) {
  CALL("cuLaunchHostFunc");
  StreamState* state = stream_of(stream);
  if (!state) return kInvalidContext;
  state->add([=] { body(argument); });
  return kSuccess;
}

// ---- kernels ----
Result cuModuleLoadDataEx(Module* module, const void* image, unsigned, unsigned*, void**) {
  CALL_IN_CONTEXT("cuModuleLoadDataEx");
  const char* text = static_cast<const char*>(image);
  if (!std::strstr(text, ".version 6.3") || !std::strstr(text, ".target sm_70")) return kInvalidPtx;
  *module = new CUmod_st{text};
  return kSuccess;
}
Result cuModuleUnload(Module module) {
  CALL("cuModuleUnload");
  delete module;
  return kSuccess;
}
Result cuModuleGetFunction(Function* function, Module module, const char* name) {
  CALL_IN_CONTEXT("cuModuleGetFunction");
  auto it = kernels().find(name);
  // The text must hold it as well, or a real driver would not find it.
  if (it == kernels().end() || module->text.find(".entry " + std::string(name) + "(") == std::string::npos)
    return kNotFound;
  *function = &it->second;
  return kSuccess;
}
Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function, int, size_t) {
  *blocks = 2;
  return kSuccess;
}
Result cuLaunchKernel(Function function, unsigned grid, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      Stream stream, void** parameters, void**) {
  CALL_IN_CONTEXT("cuLaunchKernel");
  StreamState* state = stream_of(stream);
  if (!grid) return kInvalidValue;
  std::vector<char> arguments(function->bytes);
  std::memcpy(arguments.data(), parameters[0], arguments.size());
  state->add([arguments = std::move(arguments), grid, kernel = function->kernel] {
    grid_size.x = grid;
    for (block_index.x = 0; block_index.x < grid; ++block_index.x) kernel(arguments.data());
  });
  return kSuccess;
}

}  // extern "C"
