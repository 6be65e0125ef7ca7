// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of the collectives on host memory: every element type, vectorised, chosen for this CPU.
//
// Each kernel is written once (body.h) and compiled for several instruction sets (level_*.cc); the best one
// the CPU has is picked on first use. All levels give the same bits. Pointers need no alignment beyond what
// their owner gave them, and buffers may be as large as memory.
#ifndef HOROVOD_PATHS_KERNELS_KERNELS_H_
#define HOROVOD_PATHS_KERNELS_KERNELS_H_

#include <cstddef>
#include <cstdint>

namespace hvd::kernels {

// What happens to a reduced value before it is stored: x * postscale / divisor.
//   integers   exact truncating division when postscale is 1, else in double, truncated toward zero, and
//              held at the type's ends when out of range
//   f32, f64   in their own type
//   f16, bf16  in float32
//   bool       stays what it is unless postscale is 0
struct Finish {
  double postscale = 1.0;
  int64_t divisor = 1;
};

// Memory that a reduction copies while it is at it: its loads and stores wait beside those of the reduction.
struct Beside {
  const void* from = nullptr;
  void* to = nullptr;   // null: nothing
  bool around = false;  // the cache
};

// dst[i] = srcs[0][i] op srcs[1][i] op ..., n >= 1. dst may be exactly one of the srcs, never a shifted one.
// op: HVD_SUM, HVD_MIN, HVD_MAX or HVD_PRODUCT; HVD_AVERAGE and HVD_ADASUM count as HVD_SUM.
// Integers wrap; NaN wins in min and max; half types are accumulated over all n sources in float32 and
// rounded once, to nearest even; bool is "or" for sum and max, "and" for product and min.
void reduce(int dtype, int op, void* dst, const void* const* srcs, int n, size_t count);

// The same; the result is finished, and written to dst, to dst2, or to both (either may be null). dst2 is meant
// to be a large user buffer: with stream, it is written around the cache. As many bytes as the result has are copied
// beside. `in_memory`: sources, a bit each from the first on, that lie in nobody's cache and are asked for ahead.
void reduce2(int dtype, int op, void* dst, void* dst2, const void* const* srcs, int n, size_t count,
             const Finish& finish = {}, bool stream = true, const Beside& beside = {}, uint64_t in_memory = 0);

// dst = src * factor; dst may equal src.
void scale(int dtype, void* dst, const void* src, size_t count, double factor);

// dst = dst * postscale / divisor, as Finish says.
void finish(int dtype, void* dst, size_t count, double postscale, int64_t divisor);

// memcpy that writes around the cache when the copy is large enough to gain by it.
void copy_stream(void* dst, const void* src, size_t bytes);

// Adasum. out = {a.a, a.b, b.b}, accumulated in double. Floating-point types only.
void dots(int dtype, const void* a, const void* b, size_t count, double out[3]);
// dst = ca * a + cb * b; dst may be a or b. Floating-point types only.
void combine(int dtype, void* dst, double ca, const void* a, double cb, const void* b, size_t count);

// The level in use: "avx512", "avx2", "sse2", "neon" or "scalar".
const char* simd_level();

// For tests and benchmarks: the levels this CPU can run, best first, ended by null; and a way to choose one.
const char* const* simd_levels();
bool use_simd_level(const char* name);

}  // namespace hvd::kernels

#endif  // HOROVOD_PATHS_KERNELS_KERNELS_H_
