// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/direct.h"

#include <unistd.h>

#include <algorithm>

#include "horovod/core.h"
#include "paths/cuda/tiles.h"
#include "util/dtype.h"
#include "util/log.h"
#include "util/status.h"
#include "util/threads.h"

namespace hvd::cuda {
namespace {

// Bool is held as 0 or 1: "or" is the greater, "and" the smaller of two.
int operator_for(const Reduce& how) {
  if (how.dtype != HVD_BOOL) return how.op;
  return how.op == HVD_SUM || how.op == HVD_MAX ? HVD_MAX : HVD_MIN;
}

constexpr uint32_t kFarAhead = 1u << 30;  // no stream waits for a signal that far from now

Address signal_at(char* memory, int writer) {
  return address_of(memory) + kSignalsOffset + static_cast<size_t>(writer) * kFlagStride;
}

struct Submitting {
  explicit Submitting(std::atomic<bool>& flag) : flag(flag) { flag = true; }
  ~Submitting() { flag = false; }
  Submitting(const Submitting&) = delete;
  Submitting& operator=(const Submitting&) = delete;
  std::atomic<bool>& flag;
};

}  // namespace

Direct::Direct(Tools& tools, std::unique_ptr<PeerMemory> memory, int me, int n, bool spins, int blocks)
    : Group(me, n),
      tools_(tools),
      memory_(std::move(memory)),
      spins_(spins),
      blocks_(static_cast<size_t>(spins ? blocks : kMostBlocks)),
      stream_(tools_.device->stream(0)) {}

Direct::~Direct() {
  // What is still on the device uses memory that goes away now. It ends by itself unless a peer has gone.
  if (!at_rest_ && !tools_.device->drained(stream_, 2.0)) {
    tools_.stop.set();
    abort();
  }
  if (rescuer_.joinable()) rescuer_.join();
  if (!at_rest_) tools_.device->drained(stream_, 10.0);
}

int Direct::capacity(Tools& tools) {
  int each = 2;  // of whatever type: __launch_bounds__ in kernels.cu
  for (const char* name : {"reduce_shares_f32", "reduce_small_f32"})
    each = std::min(each, tools.modules.resident_blocks(tools.modules.find("f32", name)));
  return each * tools.device->attribute(kMultiprocessors, 1);
}

Peers Direct::peers() const {
  Peers p{};
  p.me = me;
  p.n = n;
  p.step = step_;
  p.spins = spins_;
  for (int i = 0; i < n; ++i) p.memory[i] = memory_->of(i);
  p.aborted = tools_.stop.words();
  return p;
}

void Direct::meet(Stream stream) {
  const uint32_t signal = ++signal_;
  for (int i = 0; i < n; ++i)
    if (i != me) HVD_CUDA(stream_write_value, stream, signal_at(memory_->of(i), me), signal, 0);
  for (int i = 0; i < n; ++i)
    if (i != me) HVD_CUDA(stream_wait_value, stream, signal_at(memory_->of(me), i), signal, kWaitAtLeast);
}

template <class Work>
void Direct::run(Function kernel, size_t blocks, Work work, std::initializer_list<int> phases, uint32_t steps,
                 Stream stream) {
  // Either abort() is seen here, or its rescuer sees that there is more to come.
  Submitting now(submitting_);
  if (ended_) throw JobAborted("a collective was aborted");
  work.peers = peers();
  if (spins_) {
    work.phases = 0;
    for (int phase : phases) work.phases |= phase;
    tools_.modules.launch(kernel, blocks, work, stream);
    step_ += steps;
    return;
  }
  for (int phase : phases) {
    work.phases = phase;
    tools_.modules.launch(kernel, blocks, work, stream);
    meet(stream);
  }
}

void Direct::reduce_by_shares(ReduceShares work, const Reduce& how, const std::vector<size_t>& begins,
                              const std::vector<size_t>& counts, Stream stream) {
  ShareTiles cut = cut_shares(counts, item_size(how.dtype), blocks_);
  if (!cut.tiles) return;
  std::copy(begins.begin(), begins.end(), work.begin);
  std::copy(counts.begin(), counts.end(), work.count);
  work.slot = cut.slot;
  work.op = operator_for(how);
  work.after = how.after;
  std::string element = element_name(how.dtype);
  Function kernel = tools_.modules.find(element, "reduce_shares_" + element);
  // Blocks that spin go from tile to tile. By stream a launch does as many tiles as there is memory to show.
  size_t at_a_time = spins_ ? cut.tiles : cut.blocks;
  for (size_t tile = 0; tile < cut.tiles; tile += at_a_time) {
    work.first_tile = tile;
    work.last_tile = std::min(cut.tiles, tile + at_a_time);
    auto steps = static_cast<uint32_t>(2 * cut.rounds());
    if (work.shared) run(kernel, cut.blocks, work, {kPack, kCombine, kUnpack}, steps, stream);
    else run(kernel, cut.blocks, work, {kPack, kCombine}, steps, stream);
  }
}

void Direct::all_reduce(const Reduce& how, const void* in, void* out, size_t count, Stream stream) {
  size_t item = item_size(how.dtype);
  if (!count) return;
  if (is_small(count * item, static_cast<size_t>(n))) {
    ReduceSmall work{};
    work.in = in;
    work.out = out;
    work.count = count;
    work.op = operator_for(how);
    work.after = how.after;
    work.which = which_ ^= 1;
    std::string element = element_name(how.dtype);
    run(tools_.modules.find(element, "reduce_small_" + element), small_blocks(count * item, blocks_), work,
        {kPack, kCombine}, 1, stream);
    return;
  }
  std::vector<size_t> begins;
  std::vector<size_t> counts;
  equal_shares(count, item, static_cast<size_t>(n), &begins, &counts);
  ReduceShares work{};
  work.in = in;
  work.out = out;
  work.shared = 1;
  reduce_by_shares(work, how, begins, counts, stream);
}

void Direct::reduce_scatter(const Reduce& how, const void* in, void* out, const std::vector<size_t>& begins,
                            const std::vector<size_t>& counts, Stream stream) {
  ReduceShares work{};
  work.in = in;
  work.out = out;
  reduce_by_shares(work, how, begins, counts, stream);
}

void Direct::spread(Spread work, const std::vector<size_t>& totals, Stream stream) {
  size_t tiles = spread_tiles(totals);
  if (!tiles) return;
  std::copy(totals.begin(), totals.end(), work.total);
  Function kernel = tools_.modules.find("u8", "spread");
  size_t blocks = std::min(tiles, blocks_);
  size_t at_a_time = spins_ ? tiles : blocks;
  for (size_t tile = 0; tile < tiles; tile += at_a_time) {
    work.first_tile = tile;
    work.last_tile = std::min(tiles, tile + at_a_time);
    run(kernel, blocks, work, {kPack, kUnpack}, static_cast<uint32_t>(2 * divide_up(tiles, blocks) + 1), stream);
  }
}

void Direct::all_gather(const void* in, char* out, const std::vector<size_t>& begins, const std::vector<size_t>& bytes,
                        Stream stream) {
  Spread work{};
  work.in = static_cast<const char*>(in);
  for (int i = 0; i < n; ++i) {
    work.to[i] = bytes[static_cast<size_t>(i)];
    work.out[i] = out + begins[static_cast<size_t>(i)];
  }
  spread(work, bytes, stream);
}

void Direct::broadcast(const void* in, void* out, size_t bytes, int root, Stream stream) {
  Spread work{};
  work.in = static_cast<const char*>(in);
  work.to[root] = bytes;
  work.out[root] = static_cast<char*>(out);
  std::vector<size_t> totals(static_cast<size_t>(n), 0);
  totals[static_cast<size_t>(root)] = bytes;
  spread(work, totals, stream);
}

void Direct::all_to_all(const char* in, char* out, const std::vector<size_t>& bytes, Stream stream) {
  Spread work{};
  work.in = in;
  auto members = static_cast<size_t>(n);
  auto my = static_cast<size_t>(me);
  std::vector<size_t> totals(members, 0);
  for (size_t s = 0; s < members; ++s)
    for (size_t d = 0; d < members; ++d) {
      if (d == my) {
        work.from[s] = totals[s];
        work.to[s] = totals[s] + bytes[s * members + d];
        work.out[s] = out;
        out += bytes[s * members + d];
      }
      totals[s] += bytes[s * members + d];
    }
  spread(work, totals, stream);
}

// Blocks that spin hear it through the stop word.
void Direct::abort() {
  if (ended_.exchange(true)) return;
  if (!spins_) rescuer_ = start_thread("hvd-gpu-rescue", [this] { let_go(); });
}

// Streams that wait are written what they wait for, by a stream of their own, until they are through: peers that are
// still alive may write smaller numbers in between, and the driving thread may be about to add further waits.
void Direct::let_go() {
  try {
    InContext in(*tools_.device);
    Stream rescue = tools_.device->stream(kRescueLane);
    for (int turn = 0; turn < 10000 && (submitting_ || driver().stream_query(stream_) == kNotReady); ++turn) {
      for (int i = 0; i < n; ++i)
        if (i != me) HVD_CUDA(stream_write_value, rescue, signal_at(memory_->of(me), i), signal_ + kFarAhead, 0);
      HVD_CUDA(stream_synchronize, rescue);
      usleep(200);
    }
  } catch (const CudaError& e) {
    HVD_LOG(Warning, "What a GPU still waits for cannot be released: " << e.what());
  }
}

}  // namespace hvd::cuda
