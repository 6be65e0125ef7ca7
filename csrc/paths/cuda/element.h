// SPDX-License-Identifier: Apache-2.0
// The element types of the GPU kernels: how each is read, added up and finished. The same source is compiled by nvcc
// for GPUs and by the C++ compiler for the tests' stand-in; results have the bits of the host kernels (paths/kernels).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define HVD_DEVICE __device__ __forceinline__
#else
#define HVD_DEVICE inline
#endif

namespace hvd::cuda {

// value * multiplier / divisor, made ready by the host (scaling.h).
struct Scaling {
  double multiplier;
  double divisor;
  int64_t whole;  // the divisor as an integer
  int32_t multiply;
  int32_t divide;
};

struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};

HVD_DEVICE float as_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
HVD_DEVICE uint32_t as_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

#if defined(__CUDACC__)
HVD_DEVICE float widen(f16 v) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(v.bits));
  return x;
}
HVD_DEVICE void narrow(float x, f16* out) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out->bits) : "f"(x)); }
#else
inline float widen(f16 v) {
  const uint32_t sign = uint32_t(v.bits & 0x8000u) << 16;
  const uint32_t exponent = (v.bits >> 10) & 31u;
  const uint32_t fraction = v.bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormal: a multiple of 2^-24
    const float x = float(fraction) * 5.9604644775390625e-8f;
    return as_float(as_bits(x) | sign);
  }
  if (exponent == 31) return as_float(sign | 0x7f800000u | (fraction << 13));
  return as_float(sign | ((exponent + 112) << 23) | (fraction << 13));
}
// To nearest, ties to even.
inline void narrow(float x, f16* out) {
  const uint32_t bits = as_bits(x);
  const auto sign = uint16_t((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    out->bits = 0x7fffu;  // what the GPU's conversion makes of any NaN
    return;
  }
  if (magnitude >= 0x477ff000u) {  // 65520 and more
    out->bits = uint16_t(sign | 0x7c00u);
    return;
  }
  if (magnitude < 0x38800000u) {  // subnormal: let the adder round, at the place of 2^-24
    const uint32_t rounded = as_bits(as_float(magnitude) + 0.5f) - 0x3f000000u;
    out->bits = uint16_t(sign | rounded);
    return;
  }
  const uint32_t even = (magnitude >> 13) & 1u;
  out->bits = uint16_t(sign | ((magnitude + 0xfffu + even - 0x38000000u) >> 13));
}
#endif

HVD_DEVICE float widen(bf16 v) { return as_float(uint32_t(v.bits) << 16); }
// To nearest, ties to even; NaN stays a quiet NaN. By hand: the instruction for it is newer than the PTX we emit.
HVD_DEVICE void narrow(float x, bf16* out) {
  const uint32_t bits = as_bits(x);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  out->bits = uint16_t(nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

template <class T>
HVD_DEVICE T widen(T v) {
  return v;
}
template <class T>
HVD_DEVICE void narrow(T x, T* out) {
  *out = x;
}

template <class T>
struct Element {  // integers
  using Sum = T;  // the type it is added up in
  static constexpr bool kFloating = false;
};
template <>
struct Element<f16> {
  using Sum = float;
  static constexpr bool kFloating = true;
};
template <>
struct Element<bf16> : Element<f16> {};
template <>
struct Element<float> : Element<f16> {};
template <>
struct Element<double> {
  using Sum = double;
  static constexpr bool kFloating = true;
};

// ---- the operators; values as in hvd_reduce_op ----

enum Operator : int32_t { kSum = 1, kMin = 3, kMax = 4, kProduct = 5 };

template <class T>
HVD_DEVICE T wrapped_sum(T a, T b) {
  if constexpr (T(0.5) != T(0)) return a + b;  // floating point
  else return T(uint64_t(a) + uint64_t(b));
}
template <class T>
HVD_DEVICE T wrapped_product(T a, T b) {
  if constexpr (T(0.5) != T(0)) return a * b;
  else return T(uint64_t(a) * uint64_t(b));
}

// NaN wins in min and max.
template <int op, class S>
HVD_DEVICE S apply(S a, S b) {
  if constexpr (op == kSum) return wrapped_sum(a, b);
  else if constexpr (op == kProduct) return wrapped_product(a, b);
  else if constexpr (op == kMin) return (a < b) || a != a ? a : b;
  else return (a > b) || a != a ? a : b;
}

// ---- scaling ----

// Toward zero; out of range stays at the nearest end, NaN becomes 0.
template <class T>
HVD_DEVICE T truncated(double x) {
  constexpr bool is_signed = T(-1) < T(0);
  constexpr T highest = is_signed ? T((uint64_t(1) << (8 * sizeof(T) - 1)) - 1) : T(~T(0));
  constexpr T lowest = T(~highest);
  constexpr double end = 2.0 * double(uint64_t(1) << (8 * sizeof(T) - (is_signed ? 2 : 1)));
  if (x >= end) return highest;
  if (x <= double(lowest)) return lowest;
  return x == x ? T(x) : T(0);
}

template <class S>
HVD_DEVICE S scaled(S x, const Scaling& s) {
  if constexpr (S(0.5) != S(0)) {
    if (s.multiply) x *= S(s.multiplier);
    if (s.divide) x /= S(s.divisor);
    return x;
  } else {
    if (s.multiply) return truncated<S>(double(x) * s.multiplier / s.divisor);
    if (s.divide) return S(x / S(s.whole));
    return x;
  }
}

}  // namespace hvd::cuda
