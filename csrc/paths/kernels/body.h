// SPDX-License-Identifier: Apache-2.0
//
// The kernels, once for every element type and operator. A level_*.cc includes this file with its own
// compiler flags and gets its table from make_table().
#ifndef HOROVOD_PATHS_KERNELS_BODY_H_
#define HOROVOD_PATHS_KERNELS_BODY_H_

#include "horovod/core.h"
#include "paths/kernels/lanes.h"
#include "paths/kernels/table.h"

namespace hvd::kernels {
namespace {

HVD_INLINE const char* at(const void* p, size_t bytes) { return static_cast<const char*>(p) + bytes; }
HVD_INLINE char* at(void* p, size_t bytes) { return static_cast<char*>(p) + bytes; }
HVD_INLINE size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

constexpr size_t kUnroll = 4;        // vectors in flight: hides the latency of loads and additions
constexpr int kFanIn = 8;            // source streams read side by side; the prefetchers follow that many
constexpr size_t kBlock = 256;       // vectors of partial results kept in L1 when there are more sources
constexpr size_t kStreamMin = 4096;  // bytes; below, going around the cache costs more than it saves

// What lies in memory is asked for so many bytes ahead of its use. A core's own prefetcher runs less far ahead: with it
// alone 1 to 16 MiB of two ranks take half as long again, 64 MiB a fifth.
constexpr size_t kAhead = 8192;

// For a step of kBytes at `i`; nothing from `end` on, where somebody else may be writing.
template <size_t kBytes>
HVD_INLINE void fetch_ahead(const void* p, size_t i, size_t end) {
  constexpr size_t kLine = 64;
  if (i + kAhead >= end) return;
  for (size_t o = 0; o < kBytes; o += kLine) __builtin_prefetch(at(p, i + kAhead + o));
}

// Elements until p is a multiple of the vector size, or -1 if it never is.
template <class L>
HVD_INLINE ptrdiff_t head(const void* p) {
  const size_t off = (0 - reinterpret_cast<uintptr_t>(p)) % sizeof(typename L::Raw);
  return off % sizeof(typename L::Item) ? -1 : ptrdiff_t(off / sizeof(typename L::Item));
}

// ------------------------------------------------------------------------------------- reduce --

template <class L, class Op>
struct Reducer {
  using Acc = typename L::Acc;
  using Raw = typename L::Raw;
  static constexpr size_t kItem = sizeof(typename L::Item);
  static constexpr size_t kLanes = sizeof(Raw) / kItem;

  const ReduceArgs& args;
  const Epilogue epilogue;
  const Beside beside;
  const bool streaming;

  HVD_INLINE void put(size_t i, Acc acc, bool stream_it) const {
    if (epilogue.any) acc = L::finish(acc, epilogue);
    const Raw raw = L::narrow(acc);
    if (args.dst) store(at(args.dst, i * kItem), raw);
    if (!args.dst2) return;
    if (stream_it) {
      stream(at(args.dst2, i * kItem), raw);
    } else {
      store(at(args.dst2, i * kItem), raw);
    }
  }

  // Fewer elements than a vector has, at either end.
  void part(size_t i, size_t k) const {
    const size_t bytes = k * kItem;
    Acc acc = L::widen(load_part<Raw>(at(args.srcs[0], i * kItem), bytes));
    for (int s = 1; s < args.n; ++s) {
      acc = Op::template apply<L>(acc, L::widen(load_part<Raw>(at(args.srcs[s], i * kItem), bytes)));
    }
    if (epilogue.any) acc = L::finish(acc, epilogue);
    const Raw raw = L::narrow(acc);
    if (args.dst) store_part(at(args.dst, i * kItem), raw, bytes);
    if (args.dst2) store_part(at(args.dst2, i * kItem), raw, bytes);
  }

  // Elements [i, i + kUnroll * kLanes) of sources [first, last), onto acc unless first is 0.
  HVD_INLINE void gather(size_t i, int first, int last, Acc* acc) const {
    if (first == 0) {
      const char* p = at(args.srcs[0], i * kItem);
      for (size_t u = 0; u < kUnroll; ++u) acc[u] = L::widen(load<Raw>(p + u * sizeof(Raw)));
      first = 1;
    }
    for (int s = first; s < last; ++s) {
      const char* p = at(args.srcs[s], i * kItem);
      for (size_t u = 0; u < kUnroll; ++u) {
        acc[u] = Op::template apply<L>(acc[u], L::widen(load<Raw>(p + u * sizeof(Raw))));
      }
    }
  }

  HVD_INLINE void fetch_sources(size_t i, size_t end) const {
    if (!args.in_memory) return;
    for (int s = 0; s < args.n; ++s)
      if (args.in_memory >> s & 1) fetch_ahead<kUnroll * sizeof(Raw)>(args.srcs[s], i * kItem, end * kItem);
  }

  // [begin, end) is a whole number of unrolled steps.
  void few_sources(size_t begin, size_t end) const {
    for (size_t i = begin; i < end; i += kUnroll * kLanes) {
      Acc acc[kUnroll];
      fetch_sources(i, end);
      gather(i, 0, args.n, acc);
      for (size_t u = 0; u < kUnroll; ++u) put(i + u * kLanes, acc[u], streaming);
    }
  }

  void two_sources(size_t begin, size_t end) const {
    const bool around = beside.to && beside.around && head<L>(at(beside.to, begin * kItem)) == 0;
    for (size_t i = begin; i < end; i += kUnroll * kLanes) {
      Acc acc[kUnroll];
      fetch_sources(i, end);
      if (around) fetch_ahead<kUnroll * sizeof(Raw)>(beside.from, i * kItem, end * kItem);
      gather(i, 0, 2, acc);
      if (beside.to) {
        for (size_t u = 0; u < kUnroll; ++u) {
          const size_t o = (i + u * kLanes) * kItem;
          const Raw raw = load<Raw>(at(beside.from, o));
          if (around) stream(at(beside.to, o), raw);
          else store(at(beside.to, o), raw);
        }
      }
      for (size_t u = 0; u < kUnroll; ++u) put(i + u * kLanes, acc[u], streaming);
    }
    if (around) fence();
  }

  void copy_beside(size_t begin, size_t end) const {
    if (!beside.to || begin >= end) return;
    __builtin_memcpy(at(beside.to, begin * kItem), at(beside.from, begin * kItem), (end - begin) * kItem);
  }

  // Block by block, kFanIn sources at a time, partial results in L1 in the type they are computed in.
  void many_sources(size_t begin, size_t end) const {
    Acc partial[kBlock];
    constexpr size_t kStep = kUnroll * kLanes;
    for (size_t block = begin; block < end; block += kBlock * kLanes) {
      const size_t stop = smaller(block + kBlock * kLanes, end);
      for (int first = 0; first < args.n; first += kFanIn) {
        const int last = args.n - first > kFanIn ? first + kFanIn : args.n;
        for (size_t i = block; i < stop; i += kStep) {
          Acc* kept = partial + (i - block) / kLanes;
          Acc acc[kUnroll];
          if (first) {
            for (size_t u = 0; u < kUnroll; ++u) acc[u] = kept[u];
          }
          gather(i, first, last, acc);
          for (size_t u = 0; u < kUnroll; ++u) {
            if (last < args.n) {
              kept[u] = acc[u];
            } else {
              put(i + u * kLanes, acc[u], streaming);
            }
          }
        }
      }
    }
  }

  void all() const {
    size_t i = 0;
    if (streaming) {
      i = smaller(size_t(head<L>(args.dst2)), args.count);
      if (i) part(0, i);
    }
    const size_t end = i + (args.count - i) / (kUnroll * kLanes) * (kUnroll * kLanes);
    copy_beside(0, args.n == 2 ? i : args.count);
    if (args.n == 2) {
      two_sources(i, end);
      copy_beside(end, args.count);
    } else if (args.n <= kFanIn) {
      few_sources(i, end);
    } else {
      many_sources(i, end);
    }
    for (i = end; i < args.count; i += kLanes) part(i, smaller(kLanes, args.count - i));
    if (streaming) fence();
  }
};

template <class L, class Op>
void reduce_all(const ReduceArgs& args) {
  const bool streaming =
      args.dst2 && args.stream && args.count * sizeof(typename L::Item) >= kStreamMin && head<L>(args.dst2) >= 0;
  Reducer<L, Op>{args, Epilogue(*args.finish, L::kFloating), *args.beside, streaming}.all();
}

// ----------------------------------------------------------------------- element-wise updates --

// dst[i] = f(srcs[0][i], ...) for one or two sources, f on Acc.
template <class L, class F>
HVD_INLINE void map(void* dst, const void* a, const void* b, size_t count, const F& f) {
  using Raw = typename L::Raw;
  constexpr size_t kItem = sizeof(typename L::Item);
  constexpr size_t kLanes = sizeof(Raw) / kItem;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const size_t o = i * kItem;
    store(at(dst, o), L::narrow(f(L::widen(load<Raw>(at(a, o))), L::widen(load<Raw>(at(b, o))))));
  }
  if (i < count) {
    const size_t o = i * kItem, bytes = (count - i) * kItem;
    const Raw x = load_part<Raw>(at(a, o), bytes), y = load_part<Raw>(at(b, o), bytes);
    store_part(at(dst, o), L::narrow(f(L::widen(x), L::widen(y))), bytes);
  }
}

template <class L>
struct FinishWith {
  const Epilogue& e;
  HVD_INLINE typename L::Acc operator()(typename L::Acc a, typename L::Acc) const { return L::finish(a, e); }
};

template <class L>
void finish_all(void* dst, size_t count, const Finish& f) {
  const Epilogue e(f, L::kFloating);
  if (e.any) map<L>(dst, dst, dst, count, FinishWith<L>{e});
}

template <class L>
void scale_all(void* dst, const void* src, size_t count, double factor) {
  const Epilogue e(Finish{factor, 1}, L::kFloating);
  map<L>(dst, src, src, count, FinishWith<L>{e});
}

template <class L>
struct Combine {
  typename L::Real ca, cb;
  HVD_INLINE typename L::Acc operator()(typename L::Acc a, typename L::Acc b) const { return ca * a + cb * b; }
};

template <class L>
void combine_all(void* dst, double ca, const void* a, double cb, const void* b, size_t count) {
  using Real = typename L::Real;
  map<L>(dst, a, b, count, Combine<L>{Real(ca), Real(cb)});
}

// -------------------------------------------------------------------------------- dot products --

// Sixteen running sums whatever the width of a register, so that every level adds in the same order.
struct DotSums {
  static constexpr size_t kSums = 16;
  static constexpr size_t kLanes = kWidth / sizeof(double);
  static constexpr size_t kVectors = kSums / kLanes;
  Vec<double> aa[kVectors] = {}, ab[kVectors] = {}, bb[kVectors] = {};

  template <class T>
  static HVD_INLINE Vec<double> doubles(const T* p) {
    return __builtin_convertvector((load<Vec<T, kLanes * sizeof(T)>>(p)), Vec<double>);
  }

  // kSums elements of each.
  template <class T>
  HVD_INLINE void add(const T* a, const T* b) {
    for (size_t v = 0; v < kVectors; ++v) {
      const Vec<double> x = doubles(a + v * kLanes), y = doubles(b + v * kLanes);
      aa[v] += x * x;
      ab[v] += x * y;
      bb[v] += y * y;
    }
  }

  static HVD_INLINE double total(const Vec<double>* sums) {
    double lanes[kSums], result = 0.0;
    __builtin_memcpy(lanes, sums, sizeof lanes);
    for (size_t i = 0; i < kSums; ++i) result += lanes[i];
    return result;
  }
};

// n elements as Real; a whole last vector is written.
template <class L>
HVD_INLINE void to_real(typename L::Real* out, const void* p, size_t n) {
  using Raw = typename L::Raw;
  constexpr size_t kItem = sizeof(typename L::Item);
  constexpr size_t kLanes = sizeof(Raw) / kItem;
  for (size_t i = 0; i < n; i += kLanes) {
    const size_t bytes = smaller(kLanes, n - i) * kItem;
    const Raw raw = bytes == sizeof(Raw) ? load<Raw>(at(p, i * kItem)) : load_part<Raw>(at(p, i * kItem), bytes);
    store(out + i, L::widen(raw));
  }
}

// Through a small buffer of Real, which also aligns and zero-pads.
template <class L>
void dots_all(const void* a, const void* b, size_t count, double out[3]) {
  using Real = typename L::Real;
  constexpr size_t kItem = sizeof(typename L::Item);
  constexpr size_t kStep = 256;
  Real x[kStep] = {}, y[kStep] = {};
  DotSums sums;
  for (size_t i = 0; i < count; i += kStep) {
    const size_t n = smaller(kStep, count - i);
    to_real<L>(x, at(a, i * kItem), n);
    to_real<L>(y, at(b, i * kItem), n);
    const size_t padded = (n + DotSums::kSums - 1) / DotSums::kSums * DotSums::kSums;
    for (size_t k = n; k < padded; ++k) x[k] = y[k] = Real(0);
    for (size_t k = 0; k < padded; k += DotSums::kSums) sums.add(x + k, y + k);
  }
  out[0] = DotSums::total(sums.aa);
  out[1] = DotSums::total(sums.ab);
  out[2] = DotSums::total(sums.bb);
}

// ---------------------------------------------------------------------------------------- copy --

void copy_around_cache(void* dst, const void* src, size_t bytes) {
  using Raw = Vec<uint8_t>;
  if (bytes < kStreamMin) {
    __builtin_memcpy(dst, src, bytes);
    return;
  }
  size_t i = (0 - reinterpret_cast<uintptr_t>(dst)) % sizeof(Raw);
  __builtin_memcpy(dst, src, i);
  for (; i + kUnroll * sizeof(Raw) <= bytes; i += kUnroll * sizeof(Raw)) {
    Raw v[kUnroll];
    fetch_ahead<kUnroll * sizeof(Raw)>(src, i, bytes);
    for (size_t u = 0; u < kUnroll; ++u) v[u] = load<Raw>(at(src, i + u * sizeof(Raw)));
    for (size_t u = 0; u < kUnroll; ++u) stream(at(dst, i + u * sizeof(Raw)), v[u]);
  }
  fence();
  __builtin_memcpy(at(dst, i), at(src, i), bytes - i);
}

// --------------------------------------------------------------------------------------- table --

template <class L>
constexpr void fill(Table& t, int dtype) {
  t.reduce[dtype][kSum] = reduce_all<L, Sum>;
  t.reduce[dtype][kMin] = reduce_all<L, Min>;
  t.reduce[dtype][kMax] = reduce_all<L, Max>;
  t.reduce[dtype][kProduct] = reduce_all<L, Product>;
  t.scale[dtype] = scale_all<L>;
  t.finish[dtype] = finish_all<L>;
  if constexpr (L::kFloating) {
    t.dots[dtype] = dots_all<L>;
    t.combine[dtype] = combine_all<L>;
  }
}

constexpr Table make_table(const char* name) {
  Table t{};
  t.name = name;
  fill<Integer<uint8_t>>(t, HVD_UINT8);
  fill<Integer<int8_t>>(t, HVD_INT8);
  fill<Integer<uint16_t>>(t, HVD_UINT16);
  fill<Integer<int16_t>>(t, HVD_INT16);
  fill<Integer<uint32_t>>(t, HVD_UINT32);
  fill<Integer<int32_t>>(t, HVD_INT32);
  fill<Integer<uint64_t>>(t, HVD_UINT64);
  fill<Integer<int64_t>>(t, HVD_INT64);
  fill<Half>(t, HVD_FLOAT16);
  fill<Brain>(t, HVD_BFLOAT16);
  fill<Floating<float>>(t, HVD_FLOAT32);
  fill<Floating<double>>(t, HVD_FLOAT64);
  fill<Bool>(t, HVD_BOOL);
  t.reduce[HVD_BOOL][kSum] = reduce_all<Bool, Max>;  // "or" of values that are 0 or 1
  t.copy_stream = copy_around_cache;
  return t;
}

}  // namespace
}  // namespace hvd::kernels

#endif  // HOROVOD_PATHS_KERNELS_BODY_H_
