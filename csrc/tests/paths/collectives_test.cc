// SPDX-License-Identifier: Apache-2.0
//
// The data plane on one and several hosts: every collective against what it should leave on every rank.
// Values are chosen so that each result is exact, whatever the order of additions.
#include <atomic>
#include <cmath>

#include "horovod/core.h"
#include "tests/check.h"
#include "tests/paths/world.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

constexpr size_t kSlot = 16 << 10;  // the smallest the settings allow

// Threads must not touch the test's counters: they count here and the test checks afterwards.
struct Faults {
  std::atomic<long> count{0};
  void expect(bool ok) {
    if (!ok) ++count;
  }
};

float value(int rank, size_t i) { return float(int(i * 7 + size_t(rank) * 13) % 101 - 50); }

}  // namespace

TEST(allreduce_sum) {
  for (const auto& locals : worlds()) {
    World world(locals, kSlot);
    for (size_t count :
         {size_t(0), size_t(1), size_t(3), size_t(1000), size_t(1024), size_t(4096), size_t(5000), size_t(70001)}) {
      for (bool light : {false, true}) {
        if (light && count * 4 > Sizes{}.small) continue;
        Faults faults;
        world.run([&](RankContext& c) {
          std::vector<float> in(count), out(count, -1.f);
          for (int round = 0; round < 3; ++round) {
            for (size_t i = 0; i < count; ++i) in[i] = value(c.rank + round, i);
            Spans spans;
            spans.add(in.data(), out.data(), count * 4);
            c.batch(light, [&] { c.comm.reduce(spans, {HVD_FLOAT32, HVD_SUM}); });
            for (size_t i = 0; i < count; ++i) {
              float sum = 0;
              for (int r = 0; r < c.size; ++r) sum += value(r + round, i);
              faults.expect(out[i] == sum);
            }
          }
        });
        const Case c("world", world.text(), "count", count, light ? "light" : "chunked");
        CHECK_EQ(faults.count.load(), 0L);
      }
    }
  }
}

// Slots that are written around the cache: as good, in place and not, with scaled and with missing inputs among them.
TEST(allreduce_around_the_cache) {
  for (const auto& locals : std::vector<std::vector<int>>{{2}, {3}, {2, 2}, {1, 1}}) {
    World world(locals, 256 << 10);
    for (bool around : {false, true}) {
      Faults faults;
      world.run([&](RankContext& c) {
        c.comm.fix_slot_writing(around);
        const size_t counts[] = {300001, 70000, 3, 100000};
        for (int round = 0; round < 8; ++round) {
          std::vector<std::vector<float>> in, out;
          Spans spans;
          for (size_t count : counts) {
            in.emplace_back(count);
            out.emplace_back(count, -1.f);
            for (size_t i = 0; i < count; ++i) in.back()[i] = value(c.rank + round, i);
            const bool joined = count == 70000 && c.rank == 1;
            spans.add(joined ? nullptr : in.back().data(), round % 2 ? in.back().data() : out.back().data(), count * 4);
          }
          Reduction how{HVD_FLOAT32, HVD_SUM};
          how.prescale = round < 6 ? 1.0 : 2.0;
          c.batch(false, [&] { c.comm.reduce(spans, how); });
          for (size_t k = 0; k < in.size(); ++k) {
            const std::vector<float>& got = round % 2 ? in[k] : out[k];
            for (size_t i = 0; i < got.size(); ++i) {
              float sum = 0;
              for (int r = 0; r < c.size; ++r) sum += r == 1 && counts[k] == 70000 ? 0 : value(r + round, i);
              faults.expect(got[i] == sum * float(how.prescale));
            }
          }
        }
      });
      const Case c("world", world.text(), around ? "around" : "through");
      CHECK_EQ(faults.count.load(), 0L);
    }
  }
}

// Two ranks write large results around the cache unless they are in place: next to each other, and at any address.
// Most chunks are packed while the one before is reduced, through the cache and around it; by itself one that is cut
// short or that holds two tensors.
TEST(large_allreduce_of_two_ranks) {
  World world({2}, 1 << 20);
  const size_t count = (kLargeBytes / 4) / 2 + 999;
  Faults faults;
  world.run([&](RankContext& c) {
    for (size_t shift : {0, 1, 0, 1, 0}) {
      std::vector<float> in(2 * count), out(count + shift, -1.f);
      for (size_t i = 0; i < in.size(); ++i) in[i] = value(c.rank, i);
      Spans spans;
      spans.add(in.data(), out.data() + shift, count * 4);
      spans.add(in.data() + count, in.data() + count, count * 4);
      c.batch(false, [&] { c.comm.reduce(spans, Reduction{HVD_FLOAT32, HVD_SUM}); });
      for (size_t i = 0; i < count; ++i) {
        faults.expect(in[i] == value(c.rank, i));
        faults.expect(out[i + shift] == value(0, i) + value(1, i));
        faults.expect(in[count + i] == value(0, count + i) + value(1, count + i));
      }
    }
  });
  CHECK_EQ(faults.count.load(), 0L);
}

// A rank that has joined sends zeros, which it has nowhere to pack from, while the other packs beside its reduction.
TEST(large_allreduce_of_two_ranks_one_of_which_has_joined) {
  World world({2}, 1 << 20);
  const size_t count = kLargeBytes / 4;
  Faults faults;
  world.run([&](RankContext& c) {
    std::vector<float> data(count);
    for (size_t i = 0; i < count; ++i) data[i] = value(c.rank, i);
    Spans spans;
    bool joined = c.rank == 1;
    spans.add(joined ? nullptr : data.data(), joined ? nullptr : data.data(), count * 4);
    c.batch(false, [&] { c.comm.reduce(spans, Reduction{HVD_FLOAT32, HVD_SUM}); });
    for (size_t i = 0; i < count; ++i) faults.expect(data[i] == value(c.rank, i));
  });
  CHECK_EQ(faults.count.load(), 0L);
}

TEST(allreduce_in_place_average_with_prescale) {
  for (const auto& locals : worlds()) {
    World world(locals, kSlot);
    const size_t count = 9001;
    Faults faults;
    world.run([&](RankContext& c) {
      std::vector<double> data(count);
      for (size_t i = 0; i < count; ++i) data[i] = value(c.rank, i);
      Spans spans;
      spans.add(data.data(), data.data(), count * 8);
      Reduction how{HVD_FLOAT64, HVD_SUM};
      how.prescale = 0.5;
      how.postscale = 3.0;
      how.divisor = c.size;
      c.batch(false, [&] { c.comm.reduce(spans, how); });
      for (size_t i = 0; i < count; ++i) {
        double sum = 0;
        for (int r = 0; r < c.size; ++r) sum += 0.5 * value(r, i);
        faults.expect(data[i] == sum * 3.0 / c.size || std::fabs(data[i] - sum * 3.0 / c.size) < 1e-12);
      }
    });
    const Case c("world", world.text());
    CHECK_EQ(faults.count.load(), 0L);
  }
}

// Many tensors in one batch, with borders everywhere; one rank has joined and sends zeros; nobody's order of
// operations may matter to the bits.
TEST(fused_tensors_and_a_joined_rank) {
  for (const auto& locals : worlds()) {
    World world(locals, kSlot);
    const std::vector<size_t> counts{1, 17, 0, 4096, 3, 1000, 1, 1, 2047};
    for (int dtype : {HVD_FLOAT16, HVD_INT32}) {
      const size_t item = dtype == HVD_FLOAT16 ? 2 : 4;
      Faults faults;
      world.run([&](RankContext& c) {
        const bool joined = c.rank == 1;
        std::vector<std::vector<char>> in, out;
        for (size_t n : counts) {
          in.emplace_back(n * item);
          out.emplace_back(n * item, char(0x55));
          for (size_t i = 0; i < n; ++i) {
            const int32_t v = int32_t(i % 3) + c.rank;
            const uint16_t half = v == 0 ? 0 : uint16_t((15 + (v > 1) + (v > 3)) << 10);  // 0, 1, 2, 2, 4, ...
            std::memcpy(in.back().data() + i * item, dtype == HVD_FLOAT16 ? static_cast<const void*>(&half) : &v, item);
          }
        }
        Spans spans;
        for (size_t t = 0; t < counts.size(); ++t) {
          spans.add(joined ? nullptr : in[t].data(), joined ? nullptr : out[t].data(), counts[t] * item);
        }
        c.batch(false, [&] { c.comm.reduce(spans, {dtype, HVD_SUM}); });
        if (joined) return;
        for (size_t t = 0; t < counts.size(); ++t) {
          for (size_t i = 0; i < counts[t]; ++i) {
            int32_t sum = 0;
            for (int r = 0; r < c.size; ++r) {
              const int32_t v = int32_t(i % 3) + r;
              if (r != 1) sum += dtype == HVD_FLOAT16 ? (v == 0 ? 0 : v == 1 ? 1 : v <= 3 ? 2 : 4) : v;
            }
            if (dtype == HVD_INT32) {
              int32_t got;
              std::memcpy(&got, out[t].data() + i * item, item);
              faults.expect(got == sum);
            } else {
              uint16_t got;
              std::memcpy(&got, out[t].data() + i * item, item);
              const double decoded = got == 0 ? 0 : std::ldexp(1.0 + (got & 1023) / 1024.0, (got >> 10) - 15);
              faults.expect(decoded == sum);
            }
          }
        }
      });
      const Case c("world", world.text(), "dtype", dtype);
      CHECK_EQ(faults.count.load(), 0L);
    }
  }
}

TEST(allgather_of_unequal_blocks) {
  for (const auto& locals : worlds()) {
    World world(locals, kSlot);
    for (bool around : {false, true})
      for (size_t unit : {size_t(1), size_t(700), size_t(30000)}) {
        Faults faults;
        world.run([&](RankContext& c) {
          c.comm.fix_slot_writing(around);
          std::vector<size_t> blocks(static_cast<size_t>(c.size));
          std::vector<std::vector<char>> out;
          std::vector<Spans> sinks(static_cast<size_t>(c.size));
          for (int r = 0; r < c.size; ++r) {
            blocks[size_t(r)] = unit * size_t(r % 3);  // some send nothing
            out.emplace_back(blocks[size_t(r)], char(0x55));
            sinks[size_t(r)].add(nullptr, out.back().data(), blocks[size_t(r)]);
          }
          std::vector<char> mine(blocks[size_t(c.rank)]);
          for (size_t i = 0; i < mine.size(); ++i) mine[i] = char(value(c.rank, i));
          Spans spans;
          spans.add(mine.data(), nullptr, mine.size());
          c.batch(false, [&] { c.comm.allgather(spans, blocks, sinks); });
          for (int r = 0; r < c.size; ++r) {
            for (size_t i = 0; i < blocks[size_t(r)]; ++i) faults.expect(out[size_t(r)][i] == char(value(r, i)));
          }
        });
        const Case c("world", world.text(), "unit", unit, around ? "around" : "through");
        CHECK_EQ(faults.count.load(), 0L);
      }
  }
}

TEST(broadcast_from_every_root) {
  for (const auto& locals : worlds()) {
    World world(locals, kSlot);
    for (bool around : {false, true})
      for (size_t bytes : {size_t(0), size_t(1), size_t(4096), size_t(50001)}) {
        Faults faults;
        world.run([&](RankContext& c) {
          c.comm.fix_slot_writing(around);
          for (int root = 0; root < c.size; ++root) {
            std::vector<char> in(bytes), out(bytes, char(0x55));
            for (size_t i = 0; i < bytes; ++i) in[i] = char(value(root, i));
            c.batch(false, [&] { c.comm.broadcast(c.rank == root ? in.data() : nullptr, out.data(), bytes, root); });
            faults.expect(out == in);
          }
        });
        const Case c("world", world.text(), "bytes", bytes, around ? "around" : "through");
        CHECK_EQ(faults.count.load(), 0L);
      }
  }
}

TEST(alltoall_of_unequal_pieces) {
  for (const auto& locals : worlds()) {
    World world(locals, kSlot);
    for (bool around : {false, true})
      for (size_t unit : {size_t(1), size_t(333), size_t(5000)}) {
        Faults faults;
        world.run([&](RankContext& c) {
          c.comm.fix_slot_writing(around);
          const size_t n = size_t(c.size);
          std::vector<size_t> bytes(n * n);
          for (size_t s = 0; s < n; ++s) {
            for (size_t d = 0; d < n; ++d) bytes[s * n + d] = unit * ((s + 2 * d) % 4);
          }
          const size_t me = size_t(c.rank);
          std::vector<std::vector<char>> out(n), in(n);
          std::vector<const char*> send(n);
          std::vector<char*> recv(n);
          for (size_t p = 0; p < n; ++p) {
            out[p].resize(bytes[me * n + p]);
            in[p].assign(bytes[p * n + me], char(0x55));
            for (size_t i = 0; i < out[p].size(); ++i) out[p][i] = char(value(int(me * 10 + p), i));
            send[p] = out[p].data();
            recv[p] = in[p].data();
          }
          c.batch(false, [&] { c.comm.alltoall(bytes, send, recv); });
          for (size_t p = 0; p < n; ++p) {
            for (size_t i = 0; i < in[p].size(); ++i) faults.expect(in[p][i] == char(value(int(p * 10 + me), i)));
          }
        });
        const Case c("world", world.text(), "unit", unit, around ? "around" : "through");
        CHECK_EQ(faults.count.load(), 0L);
      }
  }
}

// Parallel gradients are averaged, orthogonal ones added; and every rank gets the same bits.
TEST(adasum) {
  for (const auto& locals : worlds()) {
    World world(locals, kSlot);
    const size_t count = 3001;
    Faults faults;
    std::vector<std::vector<float>> results(static_cast<size_t>(world.size()));
    world.run([&](RankContext& c) {
      std::vector<float> same(count, 2.f), apart(count, 0.f), same_out(count), apart_out(count);
      for (size_t i = size_t(c.rank); i < count; i += size_t(c.size)) apart[i] = 3.f;
      Spans spans;
      spans.add(same.data(), same_out.data(), count * 4);
      spans.add(apart.data(), apart_out.data(), count * 4);
      c.batch(false, [&] { c.comm.adasum(spans, {HVD_FLOAT32, HVD_ADASUM}); });
      for (size_t i = 0; i < count; ++i) faults.expect(std::fabs(same_out[i] - 2.f) < 1e-5f && apart_out[i] == 3.f);
      results[size_t(c.rank)] = same_out;
    });
    const Case c("world", world.text());
    CHECK_EQ(faults.count.load(), 0L);
    for (const auto& r : results) CHECK(r == results[0]);
  }
}

TEST(process_sets_of_some_ranks) {
  World world({2, 3, 1}, kSlot);
  for (const std::vector<int>& members : {std::vector<int>{0, 1}, {1, 3, 4}, {0, 2, 5}, {4}, {0, 1, 2, 3, 4}}) {
    Faults faults;
    world.run(
        [&](RankContext& c) {
          std::vector<float> data(3000, float(c.rank));
          Spans spans;
          spans.add(data.data(), data.data(), data.size() * 4);
          c.batch(false, [&] { c.comm.reduce(spans, {HVD_FLOAT32, HVD_MAX}); });
          for (float v : data) faults.expect(v == float(members.back()));
        },
        members);
    const Case c("members", members.size(), "last", members.back());
    CHECK_EQ(faults.count.load(), 0L);
  }
}

// The same over sealed links: bytes on the wire differ, results do not.
TEST(sealed_links_change_no_result) {
  for (World::Sealing sealing : {World::kAuthenticate, World::kEncrypt})
    for (const auto& locals : {std::vector<int>{1, 1}, {2, 3, 1}, {1, 1, 1, 1, 1}}) {
      World world(locals, kSlot, sealing);
      Faults faults;
      world.run([&](RankContext& c) {
        for (size_t count : {size_t(1), size_t(3000), size_t(70001)}) {
          std::vector<float> data(count);
          for (size_t i = 0; i < count; ++i) data[i] = value(c.rank, i);
          Spans spans;
          spans.add(data.data(), data.data(), count * 4);
          c.batch(false, [&] { c.comm.reduce(spans, {HVD_FLOAT32, HVD_SUM}); });
          for (size_t i = 0; i < count; ++i) {
            float sum = 0;
            for (int r = 0; r < c.size; ++r) sum += value(r, i);
            faults.expect(data[i] == sum);
          }
        }
        std::vector<char> in(50001), out(50001, char(0x55));
        for (size_t i = 0; i < in.size(); ++i) in[i] = char(value(1, i));
        c.batch(false, [&] { c.comm.broadcast(c.rank == 1 ? in.data() : nullptr, out.data(), in.size(), 1); });
        faults.expect(out == in);
      });
      const Case c("world", world.text(), sealing == World::kEncrypt ? "encrypt" : "authenticate");
      CHECK_EQ(faults.count.load(), 0L);
    }
}
