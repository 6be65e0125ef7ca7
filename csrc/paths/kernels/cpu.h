// SPDX-License-Identifier: Apache-2.0
//
// What this CPU, and the operating system that saves its registers, can run. Asked directly: the compilers'
// __builtin_cpu_supports needs a run-time library that not every tool chain ships.
#ifndef HOROVOD_PATHS_KERNELS_CPU_H_
#define HOROVOD_PATHS_KERNELS_CPU_H_

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hvd::kernels {

struct Cpu {
  bool avx2 = false;    // AVX2 and F16C
  bool avx512 = false;  // F, BW, DQ and VL
};

#if defined(__x86_64__)

inline uint64_t saved_registers() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t(high) << 32 | low;
}

inline Cpu this_cpu() {
  Cpu cpu;
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return cpu;
  const bool osxsave = c >> 27 & 1, f16c = c >> 29 & 1;
  if (!osxsave || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return cpu;
  const uint64_t saved = saved_registers();
  const auto has = [&](int bit) { return (b >> bit & 1) != 0; };
  constexpr uint64_t kYmm = 0x6, kZmm = 0xe6;
  cpu.avx2 = (saved & kYmm) == kYmm && has(5) && f16c;
  cpu.avx512 = cpu.avx2 && (saved & kZmm) == kZmm && has(16) && has(17) && has(30) && has(31);
  return cpu;
}

#else

inline Cpu this_cpu() { return {}; }

#endif

}  // namespace hvd::kernels

#endif  // HOROVOD_PATHS_KERNELS_CPU_H_
