// SPDX-License-Identifier: Apache-2.0
//
// The element types: how each is laid out in memory (Raw), in which type it is computed (Acc), and how a
// value is finished. Included by level_*.cc only; see vectors.h for the unnamed namespace.
#ifndef HOROVOD_PATHS_KERNELS_LANES_H_
#define HOROVOD_PATHS_KERNELS_LANES_H_

#include <type_traits>

#include "paths/kernels/kernels.h"
#include "paths/kernels/vectors.h"

namespace hvd::kernels {
namespace {

template <class T>
constexpr bool kSigned = T(-1) < T(0);
template <class T>
constexpr T kHighest = kSigned<T> ? T((uint64_t(1) << (8 * sizeof(T) - 1)) - 1) : T(~T(0));
template <class T>
constexpr T kLowest = T(~kHighest<T>);

// Toward zero; out of range stays at the nearest end, NaN becomes 0.
template <class T>
HVD_INLINE T truncate(double x) {
  constexpr double kEnd = 2.0 * double(uint64_t(1) << (8 * sizeof(T) - (kSigned<T> ? 2 : 1)));
  constexpr double kBegin = double(kLowest<T>);
  if (x >= kEnd) return kHighest<T>;
  if (x <= kBegin) return kLowest<T>;
  return x == x ? T(x) : T(0);
}

// A Finish made ready for its type: which steps there are.
struct Epilogue {
  double multiplier;
  double divisor;
  int64_t whole;  // the divisor as an integer
  int shift;      // log2 of it, -1 if it is no power of two
  bool multiply, divide, any;

  Epilogue(const Finish& f, bool floating) : multiplier(f.postscale), divisor(double(f.divisor)), whole(f.divisor) {
    const bool power = whole > 0 && (whole & (whole - 1)) == 0;
    shift = power ? __builtin_ctzll(uint64_t(whole)) : -1;
    if (floating && power) {  // exact, and cheaper than to divide
      multiplier /= divisor;
      divisor = 1.0;
    }
    multiply = multiplier != 1.0;
    divide = divisor != 1.0;
    any = multiply || divide;
  }
};

template <class T>
HVD_INLINE T divide_exactly(T value, const Epilogue& e) {
  if constexpr (sizeof(T) < 8) {
    // 53 bits hold both numbers, so the quotient cannot be rounded up to the next integer.
    return truncate<T>(double(value) / e.divisor);
  } else if (e.shift >= 0) {
    const T below = T(e.whole) - 1;
    if constexpr (kSigned<T>) value += (value >> 63) & below;
    return value >> e.shift;
  } else {
    return value / T(e.whole);
  }
}

template <class T>
void finish_integers(T* values, size_t n, const Epilogue& e) {
  if (!e.multiply) {
    for (size_t i = 0; i < n; ++i) values[i] = divide_exactly(values[i], e);
  } else {
    for (size_t i = 0; i < n; ++i) values[i] = truncate<T>(double(values[i]) * e.multiplier / e.divisor);
  }
}

template <class T>
struct Integer {
  using Item = T;
  using Acc = Vec<T>;
  using Raw = Vec<T>;
  using Math = Vec<std::make_unsigned_t<T>>;  // sums and products wrap there without being undefined
  static constexpr bool kFloating = false;
  static HVD_INLINE Acc widen(Raw r) { return r; }
  static HVD_INLINE Raw narrow(Acc a) { return a; }
  static HVD_INLINE Acc finish(Acc a, const Epilogue& e) {
    T values[kWidth / sizeof(T)];
    store(values, a);
    finish_integers(values, kWidth / sizeof(T), e);
    return load<Acc>(values);
  }
};

struct Bool {
  using Item = uint8_t;
  using Acc = Vec<uint8_t>;
  using Raw = Vec<uint8_t>;
  using Math = Vec<uint8_t>;
  static constexpr bool kFloating = false;
  static HVD_INLINE Acc widen(Raw r) { return (Acc)(r != Raw{}) & 1; }
  static HVD_INLINE Raw narrow(Acc a) { return a; }
  static HVD_INLINE Acc finish(Acc a, const Epilogue& e) { return e.multiplier == 0.0 ? Acc{} : a; }
};

template <class T>
struct Floating {
  using Item = T;
  using Acc = Vec<T>;
  using Raw = Vec<T>;
  using Math = Vec<T>;
  using Real = T;
  static constexpr bool kFloating = true;
  static HVD_INLINE Acc widen(Raw r) { return r; }
  static HVD_INLINE Raw narrow(Acc a) { return a; }
  static HVD_INLINE Acc finish(Acc a, const Epilogue& e) {
    if (e.multiply) a *= T(e.multiplier);
    if (e.divide) a /= T(e.divisor);
    return a;
  }
};

struct Half : Floating<float> {
  using Item = uint16_t;
  using Raw = Halves;
  static HVD_INLINE Acc widen(Raw r) { return widen_f16(r); }
  static HVD_INLINE Raw narrow(Acc a) { return narrow_f16(a); }
};

struct Brain : Floating<float> {
  using Item = uint16_t;
  using Raw = Halves;
  static HVD_INLINE Acc widen(Raw r) { return widen_bf16(r); }
  static HVD_INLINE Raw narrow(Acc a) { return narrow_bf16(a); }
};

// ---- the operators, on Acc ----

struct Sum {
  template <class L>
  static HVD_INLINE typename L::Acc apply(typename L::Acc a, typename L::Acc b) {
    return (typename L::Acc)((typename L::Math)a + (typename L::Math)b);
  }
};
struct Product {
  template <class L>
  static HVD_INLINE typename L::Acc apply(typename L::Acc a, typename L::Acc b) {
    return (typename L::Acc)((typename L::Math)a * (typename L::Math)b);
  }
};
// NaN wins: a NaN in b fails the comparison and is taken, one in a is asked for.
struct Min {
  template <class L>
  static HVD_INLINE typename L::Acc apply(typename L::Acc a, typename L::Acc b) {
    return ((a < b) | (a != a)) ? a : b;
  }
};
struct Max {
  template <class L>
  static HVD_INLINE typename L::Acc apply(typename L::Acc a, typename L::Acc b) {
    return ((a > b) | (a != a)) ? a : b;
  }
};

}  // namespace
}  // namespace hvd::kernels

#endif  // HOROVOD_PATHS_KERNELS_LANES_H_
