// SPDX-License-Identifier: Apache-2.0
//
// One vector register of the level being compiled, in the compilers' common vector extension, and the few
// things that extension cannot say: stores around the cache and half-precision conversion.
//
// Included by level_*.cc only. Everything sits in an unnamed namespace: a function compiled for AVX-512 must
// never be the copy the linker keeps for a CPU without it. For the same reason nothing here uses inline
// functions of the standard library.
#ifndef HOROVOD_PATHS_KERNELS_VECTORS_H_
#define HOROVOD_PATHS_KERNELS_VECTORS_H_

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace hvd::kernels {
namespace {

#define HVD_INLINE inline __attribute__((always_inline))

#if defined(__AVX512BW__)
constexpr size_t kWidth = 64;
#elif defined(__AVX2__)
constexpr size_t kWidth = 32;
#else
constexpr size_t kWidth = 16;
#endif

template <class T, size_t kBytes = kWidth>
struct VecOf {
  typedef T type __attribute__((vector_size(kBytes)));
};
template <class T, size_t kBytes = kWidth>
using Vec = typename VecOf<T, kBytes>::type;

template <class V>
HVD_INLINE V load(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(V));
  return v;
}

template <class V>
HVD_INLINE V load_part(const void* p, size_t bytes) {
  V v{};
  __builtin_memcpy(&v, p, bytes);
  return v;
}

template <class V>
HVD_INLINE void store(void* p, V v) {
  __builtin_memcpy(p, &v, sizeof(V));
}

template <class V>
HVD_INLINE void store_part(void* p, V v, size_t bytes) {
  __builtin_memcpy(p, &v, bytes);
}

// p is a multiple of sizeof(V). Needs fence() before another thread is told.
template <class V>
HVD_INLINE void stream(void* p, V v) {
#if defined(__AVX512BW__)
  if constexpr (sizeof(V) == 64) return _mm512_stream_si512(static_cast<__m512i*>(p), (__m512i)v);
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(V) == 32) return _mm256_stream_si256(static_cast<__m256i*>(p), (__m256i)v);
#endif
#if defined(__x86_64__)
  if constexpr (sizeof(V) == 16) return _mm_stream_si128(static_cast<__m128i*>(p), (__m128i)v);
#endif
  store(p, v);
}

HVD_INLINE void fence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

using Floats = Vec<float>;
using Words = Vec<uint32_t>;
using Halves = Vec<uint16_t, kWidth / 2>;

HVD_INLINE Floats as_floats(Words w) { return (Floats)w; }
HVD_INLINE Words as_words(Floats f) { return (Words)f; }
using Mask = Vec<int32_t>;  // what a comparison gives
HVD_INLINE Words pick(Mask mask, Words yes, Words no) { return mask ? yes : no; }
HVD_INLINE Words all(uint32_t value) { return Words{} + value; }

// ---- bfloat16: the upper half of a float32 ----

HVD_INLINE Floats widen_bf16(Halves h) { return as_floats(__builtin_convertvector(h, Words) << 16); }

HVD_INLINE Halves narrow_bf16(Floats f) {
  const Words bits = as_words(f);
  const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;  // nearest, ties to even
  const Words quiet = (bits >> 16) | 0x40u;
  return __builtin_convertvector(pick((Mask)(f != f), quiet, rounded), Halves);
}

// ---- float16 ----

#if defined(__AVX512BW__)
// The masked forms with all lanes on: the plain ones make GCC 12 warn of its own uninitialised variable.
HVD_INLINE Floats widen_f16(Halves h) { return (Floats)_mm512_maskz_cvtph_ps(0xffff, (__m256i)h); }
HVD_INLINE Halves narrow_f16(Floats f) {
  return (Halves)_mm512_maskz_cvtps_ph(0xffff, (__m512)f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#elif defined(__AVX2__) && defined(__F16C__)
HVD_INLINE Floats widen_f16(Halves h) { return (Floats)_mm256_cvtph_ps((__m128i)h); }
HVD_INLINE Halves narrow_f16(Floats f) {
  return (Halves)_mm256_cvtps_ph((__m256)f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#elif defined(__aarch64__)
HVD_INLINE Floats widen_f16(Halves h) { return (Floats)vcvt_f32_f16((float16x4_t)h); }
HVD_INLINE Halves narrow_f16(Floats f) { return (Halves)vcvt_f16_f32((float32x4_t)f); }
#else
// In integers. float16 has 5 exponent bits with bias 15 and 10 fraction bits, float32 8, 127 and 23.
HVD_INLINE Floats widen_f16(Halves h) {
  const Words half = __builtin_convertvector(h, Words);
  const Words sign = (half & 0x8000u) << 16;
  const Words magnitude = (half & 0x7fffu) << 13;
  const Words normal = magnitude + ((127u - 15u) << 23);
  const Words special = magnitude | 0x7f800000u;  // infinity and NaN
  // A subnormal is fraction * 2^-24: put the fraction under an exponent that gives its bits that weight,
  // then take the implicit one away.
  const Words tiny = all((127u - 14u) << 23);
  const Words subnormal = as_words(as_floats(tiny + magnitude) - as_floats(tiny));
  const Words exponent = magnitude & 0x0f800000u;
  Words out = pick((Mask)(exponent == all(0)), subnormal, normal);
  out = pick((Mask)(exponent == all(0x0f800000u)), special, out);
  return as_floats(out | sign);
}
HVD_INLINE Halves narrow_f16(Floats f) {
  const Words bits = as_words(f);
  const Words sign = (bits >> 16) & 0x8000u;
  const Words magnitude = bits & 0x7fffffffu;
  // Rounding may carry into the exponent, up to infinity: that is the right result.
  const Words normal = (magnitude - ((127u - 15u) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Below 2^-14 let the float adder round to a multiple of 2^-24: at 0.5 that is its last bit.
  const Words half = all(126u << 23);
  const Words subnormal = as_words(as_floats(magnitude) + as_floats(half)) - half;
  Words out = pick((Mask)(magnitude < all((127u - 14u) << 23)), subnormal, normal);
  out = pick((Mask)(magnitude >= all((127u + 16u) << 23)), all(0x7c00u), out);
  out = pick((Mask)(magnitude > all(0x7f800000u)), all(0x7e00u), out);
  return __builtin_convertvector(out | sign, Halves);
}
#endif

}  // namespace
}  // namespace hvd::kernels

#endif  // HOROVOD_PATHS_KERNELS_VECTORS_H_
