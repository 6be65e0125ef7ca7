// SPDX-License-Identifier: Apache-2.0
//
// What every rank computes for itself and must come to the same result: the cut of tensors into tiles and buffers, and
// the choice of the way. No device is needed.
#include <cstdlib>
#include <filesystem>
#include <map>
#include <numeric>
#include <random>

#include "paths/cuda/choose.h"
#include "paths/cuda/convert.h"
#include "paths/cuda/fuse.h"
#include "paths/cuda/nccl_network.h"
#include "paths/cuda/scaling.h"
#include "paths/cuda/tiles.h"
#include "tests/check.h"
#include "world/pair_tree.h"

using namespace hvd;
using namespace hvd::cuda;

namespace {

Candidate member(int rank, int host, int gpu, bool mps = true) {
  Candidate c;
  c.rank = rank;
  c.host = host;
  c.gpu.bytes[0] = char(gpu + 1);
  c.mps = mps;
  c.capacity = 264;
  c.nccl = 22809;
  return c;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST(shares_cover_everything_once_and_begin_where_they_may) {
  for (size_t item : {1, 2, 4, 8})
    for (size_t n : {1, 2, 3, 7, 16})
      for (size_t count : {size_t(0), size_t(1), size_t(15), size_t(1000), size_t(1 << 20), size_t(123456789)}) {
        const testing::Case c(item, n, count);
        std::vector<size_t> begins, counts;
        equal_shares(count, item, n, &begins, &counts);
        size_t at = 0;
        for (size_t i = 0; i < n; ++i) {
          CHECK_EQ(begins[i], at);
          CHECK(counts[i] == 0 || begins[i] * item % 16 == 0);
          at += counts[i];
        }
        CHECK_EQ(at, count);
      }
}

TEST(tiles_fit_into_the_memory_that_is_shown) {
  std::minstd_rand random(7);
  for (int turn = 0; turn < 2000; ++turn) {
    const size_t item = size_t(1) << (random() % 4);
    const size_t n = 2 + random() % 15;
    const size_t blocks = 1 + random() % kMostBlocks;
    std::vector<size_t> counts(n);
    for (size_t& c : counts) c = random() % (size_t(1) << (random() % 28));
    const testing::Case c(item, n, blocks, counts[0]);
    const ShareTiles cut = cut_shares(counts, item, blocks);
    const size_t largest = *std::max_element(counts.begin(), counts.end());
    if (!largest) {
      CHECK_EQ(cut.tiles, size_t(0));
      continue;
    }
    CHECK(cut.slot * item % 16 == 0);
    CHECK(cut.slot * item * n <= kTileBytes);
    CHECK(cut.slot * cut.tiles >= largest && cut.slot * (cut.tiles - 1) < largest);
    CHECK(cut.blocks >= 1 && cut.blocks <= blocks && cut.blocks <= cut.tiles);
    CHECK(cut.rounds() * cut.blocks >= cut.tiles);
  }
  // As many blocks as there may be have something to do, unless there is hardly anything.
  CHECK_EQ(cut_shares({100000, 100000}, 4, 66).blocks, size_t(66));
  CHECK_EQ(cut_shares({100, 100}, 4, 66).blocks, size_t(1));
  // Slots of whole passes, even if some blocks have less to do: 4 shares of 4 MiB, 2 of 64 MiB, 2 of 4 MiB.
  CHECK_EQ(cut_shares({1 << 20, 1 << 20, 1 << 20, 1 << 20}, 4, 33).slot, size_t(32 << 10) / 4);
  CHECK_EQ(cut_shares({16 << 20, 16 << 20}, 4, 99).slot, size_t(64 << 10) / 4);
  CHECK_EQ(cut_shares({1 << 20, 1 << 20}, 4, 66).slot, size_t(64 << 10) / 4);
}

TEST(small_reductions) {
  CHECK(is_small(4, 2));
  CHECK(is_small(512 << 10, 2));
  CHECK(!is_small((512 << 10) + 4, 2));
  CHECK(!is_small(512 << 10, 4));
  CHECK_EQ(small_blocks(4, 66), size_t(1));
  CHECK_EQ(small_blocks(1 << 20, 66), size_t(64));
  CHECK_EQ(small_blocks(1 << 20, 10), size_t(10));
}

TEST(fusion_packs_what_is_small) {
  FusionPlan plan = plan_fusion({100, kAloneBytes, 0, 33, 5 << 20}, false);
  CHECK_EQ(plan.alone.size(), size_t(2));
  CHECK_EQ(plan.packed.size(), size_t(2));
  CHECK_EQ(plan.packed[1].offset, size_t(112));
  CHECK_EQ(plan.bytes, size_t(112 + 48));
  plan = plan_fusion({100, 5 << 20}, false);  // one small tensor gains nothing by a buffer
  CHECK_EQ(plan.alone.size(), size_t(2));
  plan = plan_fusion({100, 5 << 20}, true);
  CHECK_EQ(plan.packed.size(), size_t(2));
  CHECK_EQ(plan_fusion({}, false).bytes, size_t(0));
}

TEST(rows_of_a_reducescatter) {
  for (size_t rows : {0, 1, 5, 16})
    for (size_t n : {1, 2, 3, 5}) {
      size_t at = 0;
      for (size_t i = 0; i < n; ++i) {
        CHECK_EQ(rows_of(rows, i, n).first, at);
        at += rows_of(rows, i, n).count;
      }
      CHECK_EQ(at, rows);
    }
}

TEST(conversions_are_cut_into_launches) {
  std::vector<Segment> segments;
  for (size_t i = 0; i < 300; ++i) segments.push_back({nullptr, nullptr, i % 3 ? i * 1000 : 0});
  size_t seen = 0;
  for (const Convert& launch : plan_conversion({}, scaling_for(HVD_FLOAT32, 1, 1), segments)) {
    CHECK(launch.n >= 1 && launch.n <= kMostSegments);
    for (int i = 0; i < launch.n; ++i) {
      const size_t blocks = launch.first_block[i + 1] - launch.first_block[i];
      CHECK(launch.segments[i].count > 0);
      CHECK_EQ(blocks, divide_up(launch.segments[i].count, kConvertItems));
      ++seen;
    }
  }
  CHECK_EQ(seen, size_t(200));
  CHECK(plan_conversion({}, scaling_for(HVD_FLOAT32, 1, 1), {{nullptr, nullptr, 0}}).empty());
}

TEST(scale_factors) {
  CHECK(!any(scaling_for(HVD_FLOAT32, 1, 1)));
  const Scaling halves = scaling_for(HVD_FLOAT32, 1, 4);  // exact: no division
  CHECK(halves.multiply && !halves.divide && halves.multiplier == 0.25);
  const Scaling thirds = scaling_for(HVD_BFLOAT16, 1, 3);
  CHECK(!thirds.multiply && thirds.divide && thirds.divisor == 3);
  const Scaling whole = scaling_for(HVD_INT64, 1, 4);
  CHECK(!whole.multiply && whole.divide && whole.whole == 4);
  CHECK(!any(scaling_for(HVD_BOOL, 0.5, 4)));
  CHECK(scaling_for(HVD_BOOL, 0.0, 1).multiply);
}

TEST(large_tensors_are_spread_where_sockets_take_the_time) {
  auto candidates = [](int ranks) {
    std::vector<Candidate> members;
    for (int r = 0; r < ranks; ++r) {
      members.push_back(member(r, r, 0));
      members.back().sockets = true;
      members.back().cores = 8;
      members.back().nccl_host = std::to_string(r);
    }
    return members;
  };
  std::vector<Candidate> hosts = candidates(3);
  Choice c = choose(hosts, 0);
  CHECK_EQ(c.nccl_streams, 4);
  CHECK(has(c.reason, "NCCL 2.28.9 (large ones over 4 communicators)"));

  hosts[1].cores = 5;  // half of them are for others
  CHECK_EQ(choose(hosts, 0).nccl_streams, 2);
  hosts[1].cores = 1;
  CHECK_EQ(choose(hosts, 0).nccl_streams, 1);

  hosts = candidates(3);
  hosts[2].sockets = false;  // something better, or nobody knows
  CHECK_EQ(choose(hosts, 0).nccl_streams, 1);
  hosts = candidates(3);
  hosts[2].nccl_host = hosts[0].nccl_host;
  CHECK_EQ(choose(hosts, 0).nccl_streams, 1);

  hosts[0].nccl_streams = 3;  // as asked for; whom the first rank asks
  CHECK_EQ(choose(hosts, 0).nccl_streams, 3);
  for (Candidate& m : hosts) m.nccl = 21702;  // cannot split them off
  CHECK_EQ(choose(hosts, 0).nccl_streams, 1);
}

// What NCCL would take between hosts.
TEST(the_network_of_nccl) {
  std::map<std::string, std::string> set;
  auto get = [&](const char* name) {
    auto found = set.find(name);
    return found == set.end() ? nullptr : found->second.c_str();
  };
  char folder[] = "/tmp/hvd-adapters-XXXXXX";
  const std::string adapters = mkdtemp(folder);
  set["NCCL_NET_PLUGIN"] = "none";  // whatever this machine has
  CHECK(find_network(get, adapters).sockets);
  CHECK(find_network(get, adapters + "/nowhere").sockets);
  std::filesystem::create_directory(adapters + "/mlx5_0");
  CHECK(!find_network(get, adapters).sockets);
  set["NCCL_IB_DISABLE"] = "1";
  CHECK(find_network(get, adapters).sockets);
  set["NCCL_NET_PLUGIN"] = "ofi";
  CHECK(!find_network(get, adapters).sockets);
  set["NCCL_NET"] = "Socket";
  CHECK(find_network(get, adapters).sockets);
  set["NCCL_NET"] = "IB";
  CHECK(!find_network(get, adapters).sockets);
  std::filesystem::remove_all(adapters);

  CHECK(find_network(get, adapters).host.empty() && !find_network(get, adapters).apart);
  set["NCCL_HOSTID"] = "a";
  set["NCCL_P2P_DISABLE"] = "1";
  CHECK(!find_network(get, adapters).apart);
  set["NCCL_SHM_DISABLE"] = "1";
  CHECK_EQ(find_network(get, adapters).host, std::string("a"));
  CHECK(find_network(get, adapters).apart);
}

TEST(the_way_is_chosen_by_what_is_there) {
  const size_t limit = 1 << 20;
  Choice c = choose({member(0, 0, 0), member(1, 0, 1)}, limit);
  CHECK(c.direct && c.spins && c.nccl && c.error.empty());
  CHECK(c.goes_direct(limit) && !c.goes_direct(limit + 1));
  CHECK_EQ(c.blocks, 99);  // other jobs may be there: three quarters of 132 multiprocessors
  c = choose({member(0, 0, 0, false), member(1, 0, 1, false)}, limit);
  CHECK_EQ(c.blocks, int(kMostBlocks));

  c = choose({member(0, 0, 0), member(1, 0, 0)}, limit);  // one GPU: NCCL refuses it
  CHECK(c.direct && c.spins && !c.nccl);
  CHECK(c.goes_direct(size_t(1) << 40));
  CHECK_EQ(c.blocks, 99);  // one waits, the other comes
  c = choose({member(0, 0, 0), member(1, 0, 0), member(2, 0, 0), member(3, 0, 0)}, limit);
  CHECK_EQ(c.blocks, 33);

  c = choose({member(0, 0, 0, false), member(1, 0, 0, false)}, limit);  // and without MPS
  CHECK(c.direct && !c.spins);
  CHECK(has(c.reason, "nvidia-cuda-mps-control"));
  c = choose({member(0, 0, 0, false), member(1, 0, 1, false)}, limit);  // which nobody needs with a GPU each
  CHECK(c.spins);

  c = choose({member(0, 0, 0), member(1, 1, 0)}, limit);  // the same GPU number on two hosts
  CHECK(!c.direct && c.nccl);
  CHECK(has(c.reason, "several hosts"));

  std::vector<Candidate> none{member(0, 0, 0), member(1, 1, 0)};
  none[1].nccl = 0;
  none[1].no_nccl = "libnccl.so.2: cannot open shared object file";
  c = choose(none, limit);
  CHECK(c.through_host() && c.error.empty());
  CHECK(has(c.reason, "rank 1: libnccl.so.2"));

  std::vector<Candidate> versions{member(0, 0, 0), member(1, 1, 0)};
  versions[1].nccl = 22703;
  c = choose(versions, limit);
  CHECK(c.through_host());
  CHECK(has(c.reason, "rank 0 has NCCL 2.28.9, rank 1 has 2.27.3"));

  std::vector<Candidate> many;
  for (int i = 0; i < kMostPeers + 1; ++i) many.push_back(member(i, 0, i));
  CHECK(!choose(many, limit).direct && choose(many, limit).nccl);
}

// While any ranks of a job wait on a GPU, in whatever process sets, whole multiprocessors are left for those that come.
TEST(ranks_that_wait_leave_multiprocessors_free) {
  const int multiprocessors = 132;
  for (int there = 2; there <= kMostPeers; ++there)  // ranks on the GPU
    for (int elsewhere : {0, 1, 4}) {                // and on another one
      if (there + elsewhere > kMostPeers) continue;
      int most = 0;  // blocks a rank has, over all sets with at least two ranks there
      for (int in = 2; in <= there; ++in)
        for (int others = 0; others <= elsewhere; ++others) {
          std::vector<Candidate> members;
          for (int r = 0; r < in; ++r) members.push_back(member(r, 0, 0));
          for (int r = 0; r < others; ++r) members.push_back(member(100 + r, 0, 1));
          for (Candidate& m : members) m.outsiders = there + elsewhere - in - others;
          most = std::max(most, choose(members, 0).blocks);
        }
      const testing::Case c(there, elsewhere);
      // With all of the job on this GPU, one of them has not come.
      const int waits = elsewhere ? there : there - 1;
      CHECK(waits * most <= multiprocessors * 3 / 4);
    }
}

TEST(places_that_other_jobs_have_are_left_to_them) {
  std::vector<Candidate> two{member(0, 0, 0), member(1, 0, 0)};
  CHECK_EQ(choose(two, 0).blocks, 99);
  two[0].room = 33;  // who claims for both says so
  CHECK_EQ(choose(two, 0).blocks, 33);
  CHECK(choose(two, 0).spins);
  two[0].room = 0;
  CHECK(!choose(two, 0).spins);
  CHECK(has(choose(two, 0).reason, "other jobs fill the GPU of rank 0"));
}

TEST(the_way_that_is_asked_for_is_taken_or_refused) {
  auto with = [](std::vector<Candidate> members, Wanted wanted) {
    for (Candidate& m : members) m.wanted = wanted;
    return choose(members, 1 << 20);
  };
  const std::vector<Candidate> near{member(0, 0, 0), member(1, 0, 1)};
  const std::vector<Candidate> far{member(0, 0, 0), member(1, 1, 1)};
  const std::vector<Candidate> crowded{member(0, 0, 0), member(1, 0, 0)};
  CHECK(with(near, Wanted::kHost).through_host());
  CHECK(with(near, Wanted::kDirect).direct && !with(near, Wanted::kDirect).nccl);
  CHECK(with(near, Wanted::kNccl).nccl && !with(near, Wanted::kNccl).direct);
  CHECK(with(crowded, Wanted::kNccl).nccl);  // NCCL itself refuses it, unless NCCL_HOSTID says otherwise
  CHECK(has(with(far, Wanted::kDirect).error, "direct, which cannot be had"));
  std::vector<Candidate> without = near;
  without[0].nccl = 0;
  without[0].no_nccl = "none";
  CHECK(has(with(without, Wanted::kNccl).error, "rank 0: none"));
  std::vector<Candidate> mixed = near;
  mixed[1].wanted = Wanted::kHost;
  CHECK(has(choose(mixed, 1).error, "is auto on rank 0 but host on rank 1"));

  Wanted wanted = Wanted::kAuto;
  CHECK(parse_wanted("nccl", &wanted) && wanted == Wanted::kNccl);
  CHECK(parse_wanted("Direct", &wanted) && wanted == Wanted::kDirect);
  CHECK(!parse_wanted("mpi", &wanted));
}

TEST(adasum_pairs_everybody_once) {
  for (int n = 1; n < 20; ++n) {
    std::vector<int> weight(size_t(n), 1);
    for (const auto& level : pair_tree(n))
      for (const Pair& p : level) {
        weight[size_t(p.left)] += weight[size_t(p.right)];
        weight[size_t(p.right)] = 0;
      }
    CHECK_EQ(weight[0], n);
    CHECK_EQ(std::accumulate(weight.begin(), weight.end(), 0), n);
  }
}
