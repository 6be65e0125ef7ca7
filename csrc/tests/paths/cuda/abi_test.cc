// SPDX-License-Identifier: Apache-2.0
//
// Our declarations of the CUDA driver's interface against its own header, where there is one (CMake looks for it).
#include "paths/cuda/driver.h"
#include "tests/check.h"

#if HVD_HAS_CUDA_H
#include <cuda.h>

#include <type_traits>

namespace {

// The same in a call: pointers to anything, or values of one size and class.
template <class Ours, class Theirs>
constexpr bool kSameValue = std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> && sizeof(Ours) == sizeof(Theirs) &&
                            std::is_class_v<Ours> == std::is_class_v<Theirs>;

template <class Ours, class Theirs>
constexpr bool kSameCall = false;
template <class R1, class... A1, class R2, class... A2>
constexpr bool kSameCall<R1 (*)(A1...), R2 (*)(A2...)> = [] {
  if constexpr (sizeof...(A1) != sizeof...(A2)) return false;
  else return kSameValue<R1, R2> && (kSameValue<A1, A2> && ...);
}();

}  // namespace

TEST(calls_have_the_shape_of_cuda_h) {
#define HVD_COMPARE(member, symbol, arguments) \
  CHECK((kSameCall<decltype(hvd::cuda::Driver::member), decltype(&::symbol)>));
  HVD_DRIVER_CALLS(HVD_COMPARE)
#undef HVD_COMPARE
}

TEST(values_are_those_of_cuda_h) {
  using namespace hvd::cuda;
  CHECK_EQ(int(kSuccess), int(CUDA_SUCCESS));
  CHECK_EQ(int(kInvalidValue), int(CUDA_ERROR_INVALID_VALUE));
  CHECK_EQ(int(kOutOfMemory), int(CUDA_ERROR_OUT_OF_MEMORY));
  CHECK_EQ(int(kDeinitialized), int(CUDA_ERROR_DEINITIALIZED));
  CHECK_EQ(int(kNotReady), int(CUDA_ERROR_NOT_READY));
  CHECK_EQ(unsigned(kEventTimed), unsigned(CU_EVENT_DEFAULT));
  CHECK_EQ(unsigned(kEventDisableTiming), unsigned(CU_EVENT_DISABLE_TIMING));
  CHECK_EQ(unsigned(kStreamNonBlocking), unsigned(CU_STREAM_NON_BLOCKING));
  CHECK_EQ(unsigned(kHostPortable), unsigned(CU_MEMHOSTALLOC_PORTABLE));
  CHECK_EQ(unsigned(kHostMapped), unsigned(CU_MEMHOSTALLOC_DEVICEMAP));
  CHECK_EQ(unsigned(kIpcLazyPeerAccess), unsigned(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  CHECK_EQ(unsigned(kWaitAtLeast), unsigned(CU_STREAM_WAIT_VALUE_GEQ));
  CHECK_EQ(int(kMultiprocessors), int(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  CHECK_EQ(unsigned(kJitErrorLog), unsigned(CU_JIT_ERROR_LOG_BUFFER));
  CHECK_EQ(unsigned(kJitErrorLogBytes), unsigned(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES));
  CHECK_EQ(int(kCaptureNone), int(CU_STREAM_CAPTURE_STATUS_NONE));
#if CUDA_VERSION >= 12040
  CHECK_EQ(int(kMpsEnabled), int(CU_DEVICE_ATTRIBUTE_MPS_ENABLED));
#endif
  CHECK_EQ(sizeof(IpcHandle), sizeof(CUipcMemHandle));
  CHECK_EQ(sizeof(Uuid), sizeof(CUuuid));
  CHECK_EQ(sizeof(Address), sizeof(CUdeviceptr));
}
#else
TEST(there_is_no_cuda_h_on_this_machine) { CHECK(true); }
#endif
