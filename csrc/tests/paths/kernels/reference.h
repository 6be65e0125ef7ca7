// SPDX-License-Identifier: Apache-2.0
//
// What the kernels must compute, one element at a time and as plainly as possible. Values travel as Number,
// wide enough for every type; load and store say what each type makes of it.
#ifndef HOROVOD_TESTS_PATHS_KERNELS_REFERENCE_H_
#define HOROVOD_TESTS_PATHS_KERNELS_REFERENCE_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "horovod/core.h"
#include "paths/kernels/kernels.h"
#include "util/dtype.h"

namespace hvd::testing {

inline bool is_half(int dtype) { return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16; }

// ---- half types through double, from their definition: sign, exponent bits, fraction bits ----

struct HalfFormat {
  int exponent_bits, fraction_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
constexpr HalfFormat kFloat16{5, 10}, kBfloat16{8, 7};
inline HalfFormat half_format(int dtype) { return dtype == HVD_FLOAT16 ? kFloat16 : kBfloat16; }

inline double decode_half(HalfFormat f, uint16_t bits) {
  const int top = (1 << f.exponent_bits) - 1;
  const int exponent = (bits >> f.fraction_bits) & top;
  const int fraction = bits & ((1 << f.fraction_bits) - 1);
  double value;
  if (exponent == top) {
    value = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(double(fraction), 1 - f.bias() - f.fraction_bits);
  } else {
    value = std::ldexp(double(fraction + (1 << f.fraction_bits)), exponent - f.bias() - f.fraction_bits);
  }
  return bits & 0x8000 ? -value : value;
}

inline uint16_t encode_half(HalfFormat f, double value) {
  const int top = (1 << f.exponent_bits) - 1;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const uint16_t infinity = uint16_t(top << f.fraction_bits);
  if (std::isnan(value)) return uint16_t(sign | infinity | (1 << (f.fraction_bits - 1)));
  double m = std::fabs(value);
  if (std::isinf(m)) return sign | infinity;
  int exponent = m == 0 ? 0 : std::ilogb(m);
  if (exponent < 1 - f.bias()) exponent = 1 - f.bias();
  // In units of the last place; nearbyint rounds ties to even.
  const double units = std::nearbyint(std::ldexp(m, f.fraction_bits - exponent));
  m = std::ldexp(units, exponent - f.fraction_bits);
  const double largest = std::ldexp(2.0 - std::ldexp(1.0, -f.fraction_bits), f.bias());
  if (m > largest) return sign | infinity;
  if (m < std::ldexp(1.0, 1 - f.bias())) return uint16_t(sign | uint16_t(units));  // subnormal or zero
  exponent = std::ilogb(m);
  const int fraction = int(std::ldexp(m, f.fraction_bits - exponent)) - (1 << f.fraction_bits);
  return uint16_t(sign | ((exponent + f.bias()) << f.fraction_bits) | fraction);
}

// ---- one value of any type ----

struct Number {
  uint64_t whole = 0;  // integers and bool, sign-extended
  double real = 0;     // floating types
};

template <class T>
T get(const void* p, size_t i) {
  T v;
  std::memcpy(&v, static_cast<const char*>(p) + i * sizeof(T), sizeof(T));
  return v;
}
template <class T>
void put(void* p, size_t i, T v) {
  std::memcpy(static_cast<char*>(p) + i * sizeof(T), &v, sizeof(T));
}

inline Number load(int dtype, const void* p, size_t i) {
  switch (dtype) {
    case HVD_UINT8: return {get<uint8_t>(p, i), 0};
    case HVD_INT8: return {uint64_t(int64_t(get<int8_t>(p, i))), 0};
    case HVD_UINT16: return {get<uint16_t>(p, i), 0};
    case HVD_INT16: return {uint64_t(int64_t(get<int16_t>(p, i))), 0};
    case HVD_UINT32: return {get<uint32_t>(p, i), 0};
    case HVD_INT32: return {uint64_t(int64_t(get<int32_t>(p, i))), 0};
    case HVD_UINT64: return {get<uint64_t>(p, i), 0};
    case HVD_INT64: return {uint64_t(get<int64_t>(p, i)), 0};
    case HVD_BOOL: return {get<uint8_t>(p, i) != 0, 0};
    case HVD_FLOAT32: return {0, get<float>(p, i)};
    case HVD_FLOAT64: return {0, get<double>(p, i)};
    default: return {0, decode_half(half_format(dtype), get<uint16_t>(p, i))};
  }
}

inline void store(int dtype, void* p, size_t i, Number v) {
  switch (dtype) {
    case HVD_FLOAT32: return put(p, i, float(v.real));
    case HVD_FLOAT64: return put(p, i, v.real);
    case HVD_FLOAT16:
    case HVD_BFLOAT16: return put(p, i, encode_half(half_format(dtype), v.real));
    default:
      switch (item_size(dtype)) {
        case 1: return put(p, i, uint8_t(v.whole));
        case 2: return put(p, i, uint16_t(v.whole));
        case 4: return put(p, i, uint32_t(v.whole));
        default: return put(p, i, v.whole);
      }
  }
}

inline bool is_signed(int dtype) {
  return dtype == HVD_INT8 || dtype == HVD_INT16 || dtype == HVD_INT32 || dtype == HVD_INT64;
}

template <class T>
T apply_real(int op, T a, T b) {
  switch (op) {
    case HVD_PRODUCT: return a * b;
    case HVD_MIN: return std::isnan(a) ? a : std::isnan(b) ? b : (a < b ? a : b);
    case HVD_MAX: return std::isnan(a) ? a : std::isnan(b) ? b : (a > b ? a : b);
    default: return a + b;
  }
}

inline Number apply(int dtype, int op, Number a, Number b) {
  if (dtype == HVD_FLOAT64) return {0, apply_real<double>(op, a.real, b.real)};
  if (is_floating(dtype)) return {0, apply_real<float>(op, float(a.real), float(b.real))};
  const bool less = is_signed(dtype) ? int64_t(a.whole) < int64_t(b.whole) : a.whole < b.whole;
  switch (op) {
    case HVD_MIN: return less ? a : b;
    case HVD_MAX: return less ? b : a;
    case HVD_PRODUCT: return {dtype == HVD_BOOL ? a.whole & b.whole : a.whole * b.whole, 0};
    default: return {dtype == HVD_BOOL ? a.whole | b.whole : a.whole + b.whole, 0};
  }
}

inline long double lowest(int dtype) {
  return is_signed(dtype) ? -std::ldexp(1.0L, int(8 * item_size(dtype)) - 1) : 0.0L;
}
inline long double highest(int dtype) {
  return std::ldexp(1.0L, int(8 * item_size(dtype)) - (is_signed(dtype) ? 1 : 0)) - 1;
}

// v * postscale / divisor.
inline Number finished(int dtype, Number v, double postscale, int64_t divisor) {
  if (dtype == HVD_BOOL) return {postscale == 0.0 ? 0 : v.whole, 0};
  if (dtype == HVD_FLOAT64) return {0, v.real * postscale / double(divisor)};
  if (is_floating(dtype)) return {0, float(v.real) * float(postscale) / float(divisor)};
  if (postscale == 1.0) {
    if (is_signed(dtype)) return {uint64_t(int64_t(v.whole) / divisor), 0};
    return {v.whole / uint64_t(divisor), 0};
  }
  const double exact = is_signed(dtype) ? double(int64_t(v.whole)) : double(v.whole);
  const double x = exact * postscale / double(divisor);
  if (std::isnan(x)) return {0, 0};
  if (x >= highest(dtype)) return {uint64_t(highest(dtype)), 0};
  if (x <= lowest(dtype)) return {uint64_t(int64_t(lowest(dtype))), 0};
  return {is_signed(dtype) ? uint64_t(int64_t(x)) : uint64_t(x), 0};
}

// ---- test data ----

// Random bits for integers (all ranges, so sums overflow), small numbers for floats with the odd special one.
inline void fill(int dtype, void* p, size_t count, std::mt19937_64& random, bool specials = true) {
  static const double kSpecial[] = {0.0,
                                    -0.0,
                                    1.0,
                                    -1.0,
                                    65504.0,
                                    6e-8,
                                    -6e-8,
                                    1e30,
                                    std::numeric_limits<double>::infinity(),
                                    -std::numeric_limits<double>::infinity(),
                                    std::numeric_limits<double>::quiet_NaN()};
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = random();
    if (dtype == HVD_BOOL) {
      put<uint8_t>(p, i, bits & 1 ? 0 : uint8_t(bits >> 8));  // any non-zero byte is true
    } else if (!is_floating(dtype)) {
      store(dtype, p, i, {bits, 0});
    } else if (specials && bits % 16 == 0) {
      store(dtype, p, i, {0, kSpecial[(bits >> 8) % std::size(kSpecial)]});
    } else {
      store(dtype, p, i, {0, double(int64_t(bits >> 40) - (1 << 23)) / (1 << 21)});
    }
  }
}

// Same value: same bits, or both NaN.
inline bool same(int dtype, const void* a, const void* b, size_t i) {
  const size_t size = item_size(dtype);
  if (std::memcmp(static_cast<const char*>(a) + i * size, static_cast<const char*>(b) + i * size, size) == 0)
    return true;
  return is_floating(dtype) && std::isnan(load(dtype, a, i).real) && std::isnan(load(dtype, b, i).real);
}

inline size_t first_difference(int dtype, const void* a, const void* b, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (!same(dtype, a, b, i)) return i;
  }
  return count;
}

}  // namespace hvd::testing

#endif  // HOROVOD_TESTS_PATHS_KERNELS_REFERENCE_H_
