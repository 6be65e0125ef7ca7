// SPDX-License-Identifier: Apache-2.0
//
// Reductions between hosts, cut in every way: random sizes, tensors, slots and types over hosts with one rank and with
// several. Values are small integers, so every sum is exact.
#include <atomic>
#include <cstring>
#include <random>

#include "horovod/core.h"
#include "tests/check.h"
#include "tests/paths/world.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

int value(int rank, size_t i) { return int((i * 7 + size_t(rank) * 13) % 7) - 3; }

// One batch that all ranks agree on.
struct Batch {
  std::vector<size_t> counts;  // elements of each tensor
  Reduction how;
  bool in_place;
  int joined;  // a rank that sends zeros and wants nothing back, or -1
};

template <typename T>
long faults_of(World& world, const Batch& batch) {
  std::atomic<long> faults{0};
  world.run([&](RankContext& c) {
    bool here = c.rank != batch.joined;
    std::vector<std::vector<T>> in, out;
    for (size_t n : batch.counts) {
      in.emplace_back(n);
      for (size_t i = 0; i < n; ++i) in.back()[i] = T(value(c.rank, i));
      out.emplace_back(n, T(99));
    }
    Spans spans;
    for (size_t t = 0; t < in.size(); ++t) {
      T* to = batch.in_place ? in[t].data() : out[t].data();
      spans.add(here ? in[t].data() : nullptr, here ? to : nullptr, in[t].size() * sizeof(T));
    }
    c.batch(false, [&] { c.comm.reduce(spans, batch.how); });
    for (size_t t = 0; t < in.size() && here; ++t) {
      const std::vector<T>& got = batch.in_place ? in[t] : out[t];
      for (size_t i = 0; i < got.size(); ++i) {
        int sum = 0;
        for (int r = 0; r < c.size; ++r) sum += r == batch.joined ? 0 : value(r, i);
        double expected = sum * batch.how.prescale * batch.how.postscale / double(batch.how.divisor);
        if (got[i] != T(expected)) ++faults;
      }
    }
  });
  return faults;
}

long faults_of(World& world, const Batch& batch) {
  switch (batch.how.dtype) {
    case HVD_INT8: return faults_of<int8_t>(world, batch);
    case HVD_INT32: return faults_of<int32_t>(world, batch);
    case HVD_FLOAT64: return faults_of<double>(world, batch);
    default: return faults_of<float>(world, batch);
  }
}

}  // namespace

TEST(any_cut_gives_the_sum) {
  std::mt19937 random(20);
  auto pick = [&](auto options) { return *(options.begin() + random() % options.size()); };
  const std::vector<std::vector<int>> shapes{{1, 1}, {1, 2}, {2, 2}, {1, 1, 1}, {2, 1, 1}, {1, 1, 1, 1, 1}};
  for (int round = 0; round < 60; ++round) {
    const std::vector<int> locals = shapes[size_t(round) % shapes.size()];
    const size_t slot = pick(std::initializer_list<size_t>{16 << 10, 64 << 10, 1 << 20});
    const World::Sealing sealing =
        pick(std::initializer_list<World::Sealing>{World::kPlain, World::kPlain, World::kEncrypt});
    World world(locals, slot, sealing);
    Batch batch;
    batch.how.dtype = pick(std::initializer_list<int>{HVD_INT8, HVD_INT32, HVD_FLOAT32, HVD_FLOAT64});
    batch.how.op = HVD_SUM;
    const bool floating = batch.how.dtype == HVD_FLOAT32 || batch.how.dtype == HVD_FLOAT64;
    if (floating && random() % 3 == 0) batch.how.prescale = 0.5;
    if (floating && random() % 3 == 0) batch.how.divisor = 4;
    if (floating && random() % 3 == 0) batch.how.postscale = 2;
    batch.in_place = random() % 2;
    batch.joined = random() % 4 == 0 ? int(random() % size_t(world.size())) : -1;
    const size_t most = pick(std::initializer_list<size_t>{3, 5000, 100000, 400000});
    for (size_t t = 0, n = 1 + random() % 4; t < n; ++t) batch.counts.push_back(random() % most);
    if (random() % 4 == 0) batch.counts.insert(batch.counts.begin() + 1, 300, 5);  // many tiny ones
    const Case c("round", round, "world", world.text(), "slot", slot, "dtype", batch.how.dtype);
    CHECK_EQ(faults_of(world, batch), 0L);
  }
}

// Each size next to a border of parts and chunks.
TEST(sizes_around_every_border) {
  for (const std::vector<int>& locals : {std::vector<int>{1, 1}, {1, 1, 1}, {2, 1}, {2, 2}}) {
    World world(locals, 128 << 10);
    for (size_t around : {size_t(8 << 10), size_t(16 << 10), size_t(32 << 10), size_t(96 << 10)})
      for (size_t count : {around - 1, around, around + 1, around + 17}) {
        const Batch batch{{count}, {HVD_FLOAT32, HVD_SUM}, true, -1};
        const Case c("world", world.text(), "count", count);
        CHECK_EQ(faults_of(world, batch), 0L);
      }
  }
}

// All hosts get the same bits, whatever the order of additions was.
TEST(every_host_gets_the_same_bits) {
  for (const std::vector<int>& locals : {std::vector<int>{1, 1}, {1, 1, 1}, {2, 1, 2}}) {
    World world(locals, 64 << 10);
    std::vector<std::vector<float>> results(static_cast<size_t>(world.size()));
    world.run([&](RankContext& c) {
      std::vector<float>& data = results[size_t(c.rank)];
      for (size_t i = 0; i < 100003; ++i) data.push_back(1.f / float(1 + value(c.rank, i) + 3 + int(i % 1013)));
      Spans spans;
      spans.add(data.data(), data.data(), data.size() * 4);
      Reduction how{HVD_FLOAT32, HVD_SUM};
      how.divisor = c.size;
      c.batch(false, [&] { c.comm.reduce(spans, how); });
    });
    const Case c("world", world.text());
    for (const auto& r : results) CHECK(std::memcmp(r.data(), results[0].data(), r.size() * 4) == 0);
  }
}
