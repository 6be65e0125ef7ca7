// SPDX-License-Identifier: Apache-2.0
// What kernels.cu needs to be compiled as C++: a block is one thread, blocks run one after another. Each kernel makes
// itself known by its name, under which the stand-in for the driver finds it.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};

namespace hvd::standin {

struct Index {
  uint32_t x = 0;
};

// Of the kernel that runs on this thread.
extern thread_local Index block_index;
extern thread_local Index grid_size;

using Kernel = void (*)(const void* arguments);
void register_kernel(const char* name, size_t argument_bytes, Kernel kernel);

struct Register {
  Register(const char* name, size_t argument_bytes, Kernel kernel) { register_kernel(name, argument_bytes, kernel); }
};

}  // namespace hvd::standin

namespace hvd::cuda {
namespace {

constexpr standin::Index threadIdx{0};
constexpr standin::Index blockDim{1};
#define blockIdx ::hvd::standin::block_index
#define gridDim ::hvd::standin::grid_size

inline void __syncthreads() {}
inline int __syncthreads_or(int value) { return value; }
inline void store_release(uint32_t* word, uint32_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
inline uint32_t load_acquire(const uint32_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
inline void pause(uint32_t turn) {
  if (turn < 100) sched_yield();
  else usleep(20);
}

}  // namespace
}  // namespace hvd::cuda

#define HVD_SHARED static thread_local
#define HVD_TEXT_OF(name) #name
#define HVD_TEXT(name) HVD_TEXT_OF(name)
#define HVD_JOIN2(a, b) a##b
#define HVD_JOIN(a, b) HVD_JOIN2(a, b)
#define HVD_KERNEL(name, Arguments)                                                            \
  static void HVD_JOIN(body_of_, name)(const Arguments& args);                                 \
  static const ::hvd::standin::Register HVD_JOIN(register_, name)(                             \
      HVD_TEXT(name), sizeof(Arguments),                                                       \
      [](const void* raw) { HVD_JOIN(body_of_, name)(*static_cast<const Arguments*>(raw)); }); \
  static void HVD_JOIN(body_of_, name)([[maybe_unused]] const Arguments& args)
