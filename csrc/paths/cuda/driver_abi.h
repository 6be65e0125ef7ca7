// SPDX-License-Identifier: Apache-2.0
// The few types, values and calls of the CUDA driver that we use. They are facts of its binary interface, written
// down so that building needs no CUDA; tests/paths/cuda/abi_test.cc compares them with cuda.h where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;
struct CUevent_st;

namespace hvd::cuda {

using Result = int;  // CUresult
using DeviceNumber = int;
using Context = CUctx_st*;
using Module = CUmod_st*;
using Function = CUfunc_st*;
using Stream = CUstream_st*;  // nullptr: the context's default stream
using RawEvent = CUevent_st*;
using Address = unsigned long long;  // CUdeviceptr

struct IpcHandle {  // CUipcMemHandle
  char bytes[64];
};
struct Uuid {
  char bytes[16];
};

enum : Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kDeinitialized = 4,
  kNotReady = 600,
};

enum : unsigned {
  kEventTimed = 0,
  kEventDisableTiming = 2,
  kStreamNonBlocking = 1,
  kHostPortable = 1,
  kHostMapped = 2,
  kIpcLazyPeerAccess = 1,
  kWaitAtLeast = 0,  // of stream_wait_value: until (int32_t)(word - value) >= 0
};

enum : int {  // CUdevice_attribute
  kMultiprocessors = 16,
  kMpsEnabled = 133,  // unknown to old drivers, which answer kInvalidValue
};

enum : unsigned {  // CUjit_option
  kJitErrorLog = 5,
  kJitErrorLogBytes = 6,
};

enum : int { kCaptureNone = 0 };  // CUstreamCaptureStatus

// X(member, symbol, arguments): every call returns a Result.
#define HVD_DRIVER_CALLS(X)                                                                \
  X(init, cuInit, (unsigned))                                                              \
  X(driver_version, cuDriverGetVersion, (int*))                                            \
  X(get_error_name, cuGetErrorName, (Result, const char**))                                \
  X(get_error_string, cuGetErrorString, (Result, const char**))                            \
  X(device_count, cuDeviceGetCount, (int*))                                                \
  X(device_get, cuDeviceGet, (DeviceNumber*, int))                                         \
  X(device_name, cuDeviceGetName, (char*, int, DeviceNumber))                              \
  X(device_uuid, cuDeviceGetUuid, (Uuid*, DeviceNumber))                                   \
  X(device_attribute, cuDeviceGetAttribute, (int*, int, DeviceNumber))                     \
  X(can_access_peer, cuDeviceCanAccessPeer, (int*, DeviceNumber, DeviceNumber))            \
  X(primary_retain, cuDevicePrimaryCtxRetain, (Context*, DeviceNumber))                    \
  X(primary_release, cuDevicePrimaryCtxRelease_v2, (DeviceNumber))                         \
  X(primary_state, cuDevicePrimaryCtxGetState, (DeviceNumber, unsigned*, int*))            \
  X(context_current, cuCtxGetCurrent, (Context*))                                          \
  X(context_device, cuCtxGetDevice, (DeviceNumber*))                                       \
  X(context_push, cuCtxPushCurrent_v2, (Context))                                          \
  X(context_pop, cuCtxPopCurrent_v2, (Context*))                                           \
  X(priority_range, cuCtxGetStreamPriorityRange, (int*, int*))                             \
  X(memory_info, cuMemGetInfo_v2, (size_t*, size_t*))                                      \
  X(memory_alloc, cuMemAlloc_v2, (Address*, size_t))                                       \
  X(memory_free, cuMemFree_v2, (Address))                                                  \
  X(host_alloc, cuMemHostAlloc, (void**, size_t, unsigned))                                \
  X(host_free, cuMemFreeHost, (void*))                                                     \
  X(host_address, cuMemHostGetDevicePointer_v2, (Address*, void*, unsigned))               \
  X(copy_async, cuMemcpyAsync, (Address, Address, size_t, Stream))                         \
  X(fill_async, cuMemsetD8Async, (Address, unsigned char, size_t, Stream))                 \
  X(stream_create, cuStreamCreateWithPriority, (Stream*, unsigned, int))                   \
  X(stream_destroy, cuStreamDestroy_v2, (Stream))                                          \
  X(stream_query, cuStreamQuery, (Stream))                                                 \
  X(stream_synchronize, cuStreamSynchronize, (Stream))                                     \
  X(stream_wait_event, cuStreamWaitEvent, (Stream, RawEvent, unsigned))                    \
  X(stream_write_value, cuStreamWriteValue32_v2, (Stream, Address, uint32_t, unsigned))    \
  X(stream_wait_value, cuStreamWaitValue32_v2, (Stream, Address, uint32_t, unsigned))      \
  X(stream_capturing, cuStreamIsCapturing, (Stream, int*))                                 \
  X(event_create, cuEventCreate, (RawEvent*, unsigned))                                    \
  X(event_destroy, cuEventDestroy_v2, (RawEvent))                                          \
  X(event_record, cuEventRecord, (RawEvent, Stream))                                       \
  X(event_query, cuEventQuery, (RawEvent))                                                 \
  X(event_elapsed, cuEventElapsedTime, (float*, RawEvent, RawEvent))                       \
  X(ipc_memory_handle, cuIpcGetMemHandle, (IpcHandle*, Address))                           \
  X(ipc_memory_open, cuIpcOpenMemHandle_v2, (Address*, IpcHandle, unsigned))               \
  X(ipc_memory_close, cuIpcCloseMemHandle, (Address))                                      \
  X(module_load, cuModuleLoadDataEx, (Module*, const void*, unsigned, unsigned*, void**))  \
  X(module_unload, cuModuleUnload, (Module))                                               \
  X(module_function, cuModuleGetFunction, (Function*, Module, const char*))                \
  X(occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor, (int*, Function, int, size_t)) \
  X(launch, cuLaunchKernel,                                                                \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void**, void**))

}  // namespace hvd::cuda
