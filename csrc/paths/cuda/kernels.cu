// SPDX-License-Identifier: Apache-2.0
// All of the GPU's work: fuse, scale and cast (convert), reduce and move between ranks that map each other's memory.
//
// Compiled once for each element type (-DHVD_ELEMENT=f32 ...) to PTX text by scripts/generate_ptx.py, and as C++ with
// one thread a block into the tests' stand-in for the driver. So nothing here depends on the number of threads.
//
// Blocks of different ranks with the same number work together and meet by flags; blocks of one rank do not wait for
// each other. The host keeps their number small enough for all of them to run at a time.
#include "paths/cuda/arguments.h"

#if defined(__CUDACC__)
#define HVD_SHARED __shared__
#define HVD_KERNEL(name, Arguments) \
  extern "C" __global__ void __launch_bounds__(hvd::cuda::kThreads, 2) name(const Arguments args)
#else
#include "tests/standin/kernel_host.h"
#endif

namespace hvd::cuda {
namespace {


// ------------------------------------------------------------------------------------ waiting --

#if defined(__CUDACC__)
HVD_DEVICE void store_release(uint32_t* word, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
HVD_DEVICE uint32_t load_acquire(const uint32_t* word) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
// Others may need what this thread holds. From the 1,000th turn on, a rest of a microsecond costs nothing.
HVD_DEVICE void pause(uint32_t turn) {
  if (turn > 1000) asm volatile("nanosleep.u32 1000;");
}
#endif

HVD_DEVICE uint32_t* flag(char* memory, int writer, uint32_t block) {
  return reinterpret_cast<uint32_t*>(memory + (size_t(writer) * kMostBlocks + block) * kFlagStride);
}

// All threads of a block come to the same answer.
HVD_DEVICE bool gone_on(const Aborted& aborted) {
  return __syncthreads_or(threadIdx.x == 0 && load_acquire(aborted.here) != 0) == 0;
}

// All members' blocks of this number have come to `step`. False: the job was aborted.
HVD_DEVICE bool meet(const Peers& peers, uint32_t step) {
  __syncthreads();
  for (int i = int(threadIdx.x); i < peers.n; i += int(blockDim.x))
    if (i != peers.me) store_release(flag(peers.memory[i], peers.me, blockIdx.x), step);
  int left = 0;
  for (int i = int(threadIdx.x); i < peers.n; i += int(blockDim.x)) {
    if (i == peers.me) {
      left |= load_acquire(peers.aborted.here) != 0;
      continue;
    }
    const uint32_t* word = flag(peers.memory[peers.me], i, blockIdx.x);
    for (uint32_t turn = 1; int32_t(load_acquire(word) - step) < 0; ++turn) {
      if (turn % 256 == 0 && load_acquire(peers.aborted.on_host) != 0) {
        left = 1;
        break;
      }
      pause(turn);
    }
  }
  return __syncthreads_or(left) == 0;
}

// ------------------------------------------------------------------------------------- memory --

HVD_DEVICE bool aligned(const void* a, const void* b, size_t to) {
  return ((reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b)) & (to - 1)) == 0;
}

HVD_DEVICE size_t at_most(size_t a, size_t b) { return a < b ? a : b; }

template <class T>
struct alignas(16) Vector {
  static constexpr int kItems = 16 / sizeof(T);
  T items[kItems];
};

// Tensors are read and written once: they need not drive out of the GPU's cache what is shown to others.
enum Use { kAgain, kOnce };

template <Use use, class Unit>
HVD_DEVICE Unit load(const Unit* p) {
#if defined(__CUDACC__)
  if constexpr (use == kOnce) return __ldcs(p);
#endif
  return *p;
}
template <Use use, class Unit>
HVD_DEVICE void store(Unit* p, Unit value) {
#if defined(__CUDACC__)
  if constexpr (use == kOnce) return __stcs(p, value);
#endif
  *p = value;
}

template <class T>
HVD_DEVICE Vector<T> load_vector(const void* p, size_t i) {
  const uint4 raw = static_cast<const uint4*>(p)[i];
  Vector<T> v;
  memcpy(&v, &raw, sizeof v);
  return v;
}
template <Use use = kAgain, class T>
HVD_DEVICE void store_vector(void* p, size_t i, const Vector<T>& v) {
  uint4 raw;
  memcpy(&raw, &v, sizeof raw);
  store<use>(static_cast<uint4*>(p) + i, raw);
}

// Copies of one block.
template <class Unit, Use from = kAgain, Use to = kAgain>
HVD_DEVICE void copy_units(void* dst, const void* src, size_t count) {
  Unit* out = static_cast<Unit*>(dst);
  const Unit* in = static_cast<const Unit*>(src);
  size_t i = threadIdx.x;
  const size_t stride = blockDim.x;
#pragma unroll 1
  for (; i + (kUnroll - 1) * stride < count; i += kUnroll * stride) {
    Unit v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) v[u] = load<from>(in + i + u * stride);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) store<to>(out + i + u * stride, v[u]);
  }
#pragma unroll 1
  for (; i < count; i += stride) store<to>(out + i, load<from>(in + i));
}

// Both ends begin at multiples of 16 bytes.
template <Use from = kAgain, Use to = kAgain>
HVD_DEVICE void copy_aligned(void* dst, const void* src, size_t bytes) {
  copy_units<uint4, from, to>(dst, src, bytes / 16);
  char* out = static_cast<char*>(dst);
  const char* in = static_cast<const char*>(src);
  for (size_t i = bytes / 16 * 16 + threadIdx.x; i < bytes; i += blockDim.x) out[i] = in[i];
}

HVD_DEVICE void copy_bytes(char* dst, const char* src, size_t bytes) {
  if (aligned(dst, src, 16)) copy_aligned(dst, src, bytes);
  else if (aligned(dst, src, 4) && bytes % 4 == 0) copy_units<uint32_t>(dst, src, bytes / 4);
  else copy_units<uint8_t>(dst, src, bytes);
}

// ------------------------------------------------------------------------------------ convert --

template <class From, class To>
HVD_DEVICE void convert_one(To* out, From in, const Scaling& scaling) {
  using Wide = typename Element<From>::Sum;
  narrow(static_cast<typename Element<To>::Sum>(scaled(static_cast<Wide>(widen(in)), scaling)), out);
}

// Elements [0, count) by the threads of one block.
template <class From, class To>
HVD_DEVICE void convert_range(To* out, const From* in, size_t count, const Scaling& scaling) {
  // Whole vectors of the wider type on both sides.
  constexpr int kItems = sizeof(From) > sizeof(To) ? 16 / sizeof(From) : 16 / sizeof(To);
  struct alignas(kItems * sizeof(From)) Source {
    From items[kItems];
  };
  struct alignas(kItems * sizeof(To)) Target {
    To items[kItems];
  };
  size_t done = 0;
  if (in && aligned(in, out, 16)) {
    const Source* sources = reinterpret_cast<const Source*>(in);
    Target* targets = reinterpret_cast<Target*>(out);
    const size_t vectors = count / kItems;
#pragma unroll 1
    for (size_t i = threadIdx.x; i < vectors; i += blockDim.x) {
      const Source s = sources[i];
      Target t;
#pragma unroll
      for (int k = 0; k < kItems; ++k) convert_one(&t.items[k], s.items[k], scaling);
      targets[i] = t;
    }
    done = vectors * kItems;
  }
#pragma unroll 1
  for (size_t i = done + threadIdx.x; i < count; i += blockDim.x) {
    From value{};
    if (in) value = in[i];
    convert_one(&out[i], value, scaling);
  }
}

// The segment this block works on, and where in it.
template <class Table>
HVD_DEVICE int segment_of(const Table& table, size_t* first) {
  int low = 0;
  int high = table.n;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.first_block[middle] <= blockIdx.x) low = middle;
    else high = middle;
  }
  *first = size_t(blockIdx.x - table.first_block[low]) * kConvertItems;
  return low;
}

template <class From, class To>
HVD_DEVICE void convert_segments(const Convert& args) {
  if (!gone_on(args.aborted)) return;
  size_t first;
  const Segment& s = args.segments[segment_of(args, &first)];
  if (first >= s.count) return;
  const From* in = static_cast<const From*>(s.in);
  convert_range(static_cast<To*>(s.out) + first, in ? in + first : nullptr,
                at_most(s.count - first, kConvertItems), args.scaling);
}

// ------------------------------------------------------------------------------------- reduce --

// The same place in every member's memory; the own part is read from the tensor itself.
template <class T>
struct Sources {
  const Peers& peers;
  size_t place;  // bytes from the start of a member's memory
  const T* own;

  HVD_DEVICE const T* of(int rank) const {
    return rank == peers.me ? own : reinterpret_cast<const T*>(peers.memory[rank] + place);
  }
};

// Members are added in the order of their ranks, so that all get the same bits.
template <int op, class T>
HVD_DEVICE void reduce_item(const Sources<T>& from, T* out, T* second, size_t i, const Scaling& after) {
  using Sum = typename Element<T>::Sum;
  Sum sum = widen(from.of(0)[i]);
#pragma unroll 1
  for (int r = 1; r < from.peers.n; ++r) sum = apply<op>(sum, static_cast<Sum>(widen(from.of(r)[i])));
  if constexpr (Element<T>::kFloating) sum = scaled(sum, after);
  T result;
  narrow(sum, &result);
  out[i] = result;
  if (second) second[i] = result;
}

// Vectors i, i + blockDim.x, ...: kWide of them, whose loads are under way together.
template <int op, int kWide, class T>
HVD_DEVICE void reduce_vectors(const Sources<T>& from, T* out, T* second, size_t i, const Scaling& after) {
  using Sum = typename Element<T>::Sum;
  constexpr int kItems = Vector<T>::kItems;
  Sum sum[kWide][kItems];
  Vector<T> v[kWide];
  const T* source = from.of(0);
#pragma unroll
  for (int w = 0; w < kWide; ++w) v[w] = load_vector<T>(source, i + size_t(w) * blockDim.x);
#pragma unroll
  for (int w = 0; w < kWide; ++w)
#pragma unroll
    for (int k = 0; k < kItems; ++k) sum[w][k] = widen(v[w].items[k]);
#pragma unroll 1
  for (int r = 1; r < from.peers.n; ++r) {
    source = from.of(r);
#pragma unroll
    for (int w = 0; w < kWide; ++w) v[w] = load_vector<T>(source, i + size_t(w) * blockDim.x);
#pragma unroll
    for (int w = 0; w < kWide; ++w)
#pragma unroll
      for (int k = 0; k < kItems; ++k) sum[w][k] = apply<op>(sum[w][k], static_cast<Sum>(widen(v[w].items[k])));
  }
  if constexpr (Element<T>::kFloating) {  // integers are scaled by `convert`
    const Sum multiplier = Sum(after.multiplier);
    const Sum divisor = Sum(after.divisor);
#pragma unroll
    for (int w = 0; w < kWide; ++w)
#pragma unroll
      for (int k = 0; k < kItems; ++k) sum[w][k] *= multiplier;
    if (after.divide)
#pragma unroll
      for (int w = 0; w < kWide; ++w)
#pragma unroll
        for (int k = 0; k < kItems; ++k) sum[w][k] /= divisor;
  }
#pragma unroll
  for (int w = 0; w < kWide; ++w) {
#pragma unroll
    for (int k = 0; k < kItems; ++k) narrow(sum[w][k], &v[w].items[k]);
    store_vector<kOnce>(out, i + size_t(w) * blockDim.x, v[w]);
    if (second) store_vector(second, i + size_t(w) * blockDim.x, v[w]);
  }
}

template <int op, class T>
HVD_DEVICE void reduce_range(const Sources<T>& from, T* out, T* second, size_t count, const Scaling& after) {
  constexpr int kWide = sizeof(T) >= 4 ? 4 : int(sizeof(T));  // narrow elements take more registers
  const size_t stride = blockDim.x;
  const size_t vectors = count / Vector<T>::kItems;
  const size_t whole = vectors / (kWide * stride) * (kWide * stride);
#pragma unroll 1
  for (size_t i = threadIdx.x; i < whole; i += kWide * stride) reduce_vectors<op, kWide>(from, out, second, i, after);
#pragma unroll 1
  for (size_t i = whole + threadIdx.x; i < vectors; i += stride) reduce_vectors<op, 1>(from, out, second, i, after);
#pragma unroll 1
  for (size_t i = vectors * Vector<T>::kItems + threadIdx.x; i < count; i += stride)
    reduce_item<op>(from, out, second, i, after);
}

template <class T>
HVD_DEVICE void reduce_by(int op, const Sources<T>& from, T* out, T* second, size_t count, const Scaling& after) {
  switch (op) {
    case kMin: return reduce_range<kMin>(from, out, second, count, after);
    case kMax: return reduce_range<kMax>(from, out, second, count, after);
    case kProduct: return reduce_range<kProduct>(from, out, second, count, after);
    default: return reduce_range<kSum>(from, out, second, count, after);
  }
}

// What one block does in a reduction by shares, tile after tile.
template <class T>
struct ShareBlock {
  const ReduceShares& args;
  const Peers& peers;

  // The block's n-th tile, if there is one. What is shown of it lies where the one before lay.
  HVD_DEVICE size_t tile(size_t n) const { return args.first_tile + blockIdx.x + n * gridDim.x; }
  HVD_DEVICE bool exists(size_t n) const { return tile(n) < args.last_tile; }
  HVD_DEVICE size_t shown() const { return kRegionsOffset + size_t(blockIdx.x) * kRegionBytes; }
  HVD_DEVICE size_t result() const { return shown() + kTileBytes; }
  // Elements of member i's share in this tile.
  HVD_DEVICE size_t length(size_t n, int i) const {
    const size_t offset = tile(n) * args.slot;
    return args.count[i] > offset ? at_most(args.count[i] - offset, args.slot) : size_t(0);
  }

  HVD_DEVICE void pack(size_t n) const {
    const T* in = static_cast<const T*>(args.in) + tile(n) * args.slot;
#pragma unroll 1
    for (int k = 1; k < peers.n; ++k) {
      const int i = (peers.me + k) % peers.n;
      copy_aligned<kOnce, kAgain>(peers.memory[peers.me] + shown() + size_t(i) * args.slot * sizeof(T),
                                  in + args.begin[i], length(n, i) * sizeof(T));
    }
  }
  HVD_DEVICE void combine(size_t n) const {
    const int me = peers.me;
    const size_t offset = tile(n) * args.slot;
    const size_t mine = args.begin[me] + offset;
    const Sources<T> from{peers, shown() + size_t(me) * args.slot * sizeof(T), static_cast<const T*>(args.in) + mine};
    reduce_by(args.op, from, static_cast<T*>(args.out) + (args.shared ? mine : offset),
              args.shared ? reinterpret_cast<T*>(peers.memory[me] + result()) : nullptr, length(n, me), args.after);
  }
  HVD_DEVICE void unpack(size_t n) const {
    T* out = static_cast<T*>(args.out) + tile(n) * args.slot;
#pragma unroll 1
    for (int k = 1; k < peers.n; ++k) {
      const int i = (peers.me + k) % peers.n;
      copy_aligned<kAgain, kOnce>(out + args.begin[i], peers.memory[i] + result(), length(n, i) * sizeof(T));
    }
  }
};

template <class T>
HVD_DEVICE void reduce_shares(const ReduceShares& args) {
  const Peers& peers = args.peers;
  const ShareBlock<T> block{args, peers};
  if (!peers.spins) {
    if (!gone_on(peers.aborted) || !block.exists(0)) return;
    if (args.phases & kPack) block.pack(0);
    if (args.phases & kCombine) block.combine(0);
    if (args.phases & kUnpack) block.unpack(0);
    return;
  }
  uint32_t step = peers.step;
#pragma unroll 1
  for (size_t n = 0; block.exists(n); ++n) {
    block.pack(n);
    if (!meet(peers, ++step)) return;
    block.combine(n);
    if (!meet(peers, ++step)) return;
    if (args.shared) block.unpack(n);
  }
}

template <class T>
HVD_DEVICE void reduce_small(const ReduceSmall& args) {
  const Peers& peers = args.peers;
  constexpr size_t kItems = Vector<T>::kItems;
  const size_t blocks = gridDim.x;
  const size_t part = ((args.count + blocks - 1) / blocks + kItems - 1) / kItems * kItems;
  const size_t first = part * blockIdx.x;
  const size_t count = first < args.count ? at_most(args.count - first, part) : 0;
  const T* in = static_cast<const T*>(args.in) + first;
  const size_t place = kSmallOffset + size_t(args.which) * kSmallBytes + first * sizeof(T);
  if (!peers.spins && !gone_on(peers.aborted)) return;
  if (args.phases & kPack) copy_aligned(peers.memory[peers.me] + place, in, count * sizeof(T));
  if (peers.spins && !meet(peers, peers.step + 1)) return;
  if (!(args.phases & kCombine)) return;
  reduce_by(args.op, Sources<T>{peers, place, in}, static_cast<T*>(args.out) + first, static_cast<T*>(nullptr), count,
            args.after);
}

// -------------------------------------------------------------------------------------- spread --

HVD_DEVICE void spread_bytes(const Spread& args) {
  const Peers& peers = args.peers;
  const int me = peers.me;
  const size_t region = kRegionsOffset + size_t(blockIdx.x) * kRegionBytes;
  uint32_t step = peers.step;
  if (!peers.spins && !gone_on(peers.aborted)) return;
  // Others may still read what the kernel before has shown.
  if (peers.spins && !meet(peers, ++step)) return;
#pragma unroll 1
  for (size_t tile = args.first_tile + blockIdx.x; tile < args.last_tile; tile += gridDim.x) {
    const size_t begin = tile * kRegionBytes;
    if ((args.phases & kPack) && begin < args.total[me])
      copy_bytes(peers.memory[me] + region, args.in + begin, at_most(args.total[me] - begin, kRegionBytes));
    if (peers.spins && !meet(peers, ++step)) return;
    if (args.phases & kUnpack)
#pragma unroll 1
      for (int k = 0; k < peers.n; ++k) {
        const int i = (me + k) % peers.n;
        const size_t from = args.from[i] > begin ? args.from[i] : begin;
        const size_t to = at_most(args.to[i], begin + kRegionBytes);
        if (from >= to) continue;
        char* out = args.out[i] + (from - args.from[i]);
        if (i != me) copy_bytes(out, peers.memory[i] + region + (from - begin), to - from);
        else if (out != args.in + from) copy_bytes(out, args.in + from, to - from);
      }
    // Nobody overwrites what others still read.
    if (peers.spins && !meet(peers, ++step)) return;
  }
}

// -------------------------------------------------------------------------------------- Adasum --

// One block a segment, always in the same order: the sums do not differ from run to run.
template <class T>
HVD_DEVICE void dot_products(const Pairwise& args) {
  HVD_SHARED double shared[3 * kThreads];
  if (!gone_on(args.aborted)) return;
  const Segment& s = args.segments[blockIdx.x];
  const T* a = static_cast<const T*>(s.out);
  const T* b = static_cast<const T*>(s.in);
  double aa = 0;
  double ab = 0;
  double bb = 0;
  for (size_t i = threadIdx.x; i < s.count; i += blockDim.x) {
    const auto x = static_cast<double>(widen(a[i]));
    const auto y = static_cast<double>(widen(b[i]));
    aa += x * x;
    ab += x * y;
    bb += y * y;
  }
  shared[3 * threadIdx.x] = aa;
  shared[3 * threadIdx.x + 1] = ab;
  shared[3 * threadIdx.x + 2] = bb;
  for (uint32_t half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half)
      for (int k = 0; k < 3; ++k) shared[3 * threadIdx.x + k] += shared[3 * (threadIdx.x + half) + k];
  }
  if (threadIdx.x == 0)
    for (int k = 0; k < 3; ++k) args.sums[3 * blockIdx.x + k] = shared[k];
}

// a = (1 - ab / 2aa) a + (1 - ab / 2bb) b
template <class T>
HVD_DEVICE void combine_pairs(const Pairwise& args) {
  constexpr double tiny = 1.4916681462400413e-154;  // the root of the smallest normal double
  using Sum = typename Element<T>::Sum;
  if (!gone_on(args.aborted)) return;
  size_t first;
  const int which = segment_of(args, &first);
  const Segment& s = args.segments[which];
  const double* sums = args.sums + 3 * which;
  const Sum left = Sum(sums[0] < tiny ? 1.0 : 1.0 - sums[1] / (2 * sums[0]));
  const Sum right = Sum(sums[2] < tiny ? 1.0 : 1.0 - sums[1] / (2 * sums[2]));
  T* a = static_cast<T*>(s.out);
  const T* b = static_cast<const T*>(s.in);
  const size_t last = at_most(s.count, first + kConvertItems);
  for (size_t i = first + threadIdx.x; i < last; i += blockDim.x) {
    T value;
    narrow(static_cast<Sum>(left * widen(a[i]) + right * widen(b[i])), &value);
    a[i] = value;
  }
}

}  // namespace
}  // namespace hvd::cuda

// --------------------------------------------------------------------------------- entry points --

using hvd::cuda::bf16;
using hvd::cuda::f16;
using f32 = float;
using f64 = double;
using u8 = uint8_t;
using i8 = int8_t;
using u16 = uint16_t;
using i16 = int16_t;
using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using i64 = int64_t;

#define HVD_JOINED(a, b) a##_##b
#define HVD_NAME(a, b) HVD_JOINED(a, b)

#define HVD_CONVERT(from, to)                                              \
  HVD_KERNEL(HVD_NAME(HVD_NAME(convert, from), to), hvd::cuda::Convert) { \
    hvd::cuda::convert_segments<from, to>(args);                           \
  }

HVD_KERNEL(HVD_NAME(reduce_shares, HVD_ELEMENT), hvd::cuda::ReduceShares) {
  hvd::cuda::reduce_shares<HVD_ELEMENT>(args);
}
HVD_KERNEL(HVD_NAME(reduce_small, HVD_ELEMENT), hvd::cuda::ReduceSmall) { hvd::cuda::reduce_small<HVD_ELEMENT>(args); }
HVD_CONVERT(HVD_ELEMENT, HVD_ELEMENT)

#if defined(HVD_IS_f32) || defined(HVD_IS_f64)
HVD_CONVERT(HVD_ELEMENT, f16)
HVD_CONVERT(HVD_ELEMENT, bf16)
HVD_CONVERT(f16, HVD_ELEMENT)
HVD_CONVERT(bf16, HVD_ELEMENT)
#endif
#if defined(HVD_IS_i16)
HVD_CONVERT(i16, i32)
HVD_CONVERT(i32, i16)
#endif
#if defined(HVD_IS_u16)
HVD_CONVERT(u16, u32)
HVD_CONVERT(u32, u16)
#endif
#if defined(HVD_IS_f16) || defined(HVD_IS_bf16) || defined(HVD_IS_f32) || defined(HVD_IS_f64)
HVD_KERNEL(HVD_NAME(dots, HVD_ELEMENT), hvd::cuda::Pairwise) { hvd::cuda::dot_products<HVD_ELEMENT>(args); }
HVD_KERNEL(HVD_NAME(combine, HVD_ELEMENT), hvd::cuda::Pairwise) { hvd::cuda::combine_pairs<HVD_ELEMENT>(args); }
#endif
#if defined(HVD_IS_u8)
HVD_KERNEL(spread, hvd::cuda::Spread) { hvd::cuda::spread_bytes(args); }
#endif
