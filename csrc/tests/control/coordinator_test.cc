// SPDX-License-Identifier: Apache-2.0
//
// The whole control plane in one thread, up to 1,024 ranks and in random orders of delivery: every rank sees
// the same plan, every tensor is planned exactly once, after the last rank has submitted it.
#include <algorithm>

#include "tests/check.h"
#include "tests/control/simulation.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

Description allreduce(const std::string& name, std::vector<int64_t> shape, int dtype = HVD_FLOAT32) {
  Description d;
  d.name = name;
  d.kind = HVD_ALLREDUCE;
  d.dtype = dtype;
  d.reduce_op = HVD_SUM;
  d.shape = std::move(shape);
  return d;
}

// One of the two tensors of a group.
Description grouped(const std::string& name, int process_set) {
  Description d = allreduce(name, {4});
  d.process_set = process_set;
  d.group = 77;
  d.group_size = 2;
  return d;
}

std::vector<std::string> planned_names(const Simulation& sim) {
  // Rank 0 is in every set of these tests, so its own list is the whole one.
  return sim.ranks[0].executed;
}

bool same_plan(const std::vector<Batch>& a, const std::vector<Batch>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].seq != b[i].seq || a[i].kind != b[i].kind || a[i].error != b[i].error ||
        a[i].tensors.size() != b[i].tensors.size()) {
      return false;
    }
    for (size_t t = 0; t < a[i].tensors.size(); ++t) {
      if (a[i].tensors[t].id != b[i].tensors[t].id || a[i].tensors[t].full != b[i].tensors[t].full) return false;
    }
  }
  return true;
}

void check_agreement(const Simulation& sim) {
  for (int r = 1; r < sim.size(); ++r) {
    const Case c("rank", r);
    CHECK(same_plan(sim.ranks[r].plan, sim.ranks[0].plan));
    CHECK(sim.ranks[r].pending.empty());
  }
}

template <class T>
void shuffle(std::vector<T>& list, std::mt19937_64& random) {
  for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[random() % i]);
}

}  // namespace

TEST(every_rank_sees_one_plan) {
  struct World {
    int hosts, per_host;
  };
  for (World w : {World{1, 1}, {1, 4}, {2, 1}, {3, 3}, {10, 2}, {20, 1}, {90, 1}}) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const Case c("hosts", w.hosts, "ranks", w.per_host, "seed", seed);
      std::mt19937_64 random(seed);
      Simulation sim(w.hosts, w.per_host, Settings{}, seed);
      for (int step = 0; step < 3; ++step) {
        for (int r = 0; r < sim.size(); ++r) {
          std::vector<int> order{0, 1, 2, 3, 4, 5, 6, 7};
          shuffle(order, random);
          for (int i : order) sim.submit(r, allreduce("grad." + std::to_string(i), {i + 1, 3}));
        }
        sim.run();
      }
      check_agreement(sim);
      std::vector<std::string> names = planned_names(sim);
      CHECK_EQ(names.size(), size_t(24));
      std::sort(names.begin(), names.end());
      for (int i = 0; i < 8; ++i) CHECK_EQ(names[3 * i], "grad." + std::to_string(i));
      // After the first step nobody spells a tensor out again.
      const std::vector<Batch>& plan = sim.ranks[0].plan;
      CHECK(!plan.back().tensors.back().full);
    }
  }
}

// A barrier that is spelled out every time takes longer than the allreduce of one number.
TEST(a_barrier_is_spelled_out_once) {
  Simulation sim(3, 2, Settings{}, 7);
  Description barrier;
  barrier.name = "barrier";
  barrier.kind = HVD_BARRIER;
  for (int step = 0; step < 3; ++step) {
    for (int r = 0; r < sim.size(); ++r) sim.submit(r, barrier);
    sim.run();
    CHECK_EQ(sim.ranks[0].plan.size(), size_t(step + 1));
    CHECK_EQ(sim.ranks[0].plan.back().tensors.back().full, step == 0);
  }
  check_agreement(sim);
}

TEST(nothing_is_planned_before_the_last_rank) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Simulation sim(9, 2, Settings{}, seed);
    for (int r = 0; r < sim.size() - 1; ++r) sim.submit(r, allreduce("t", {4}));
    sim.run();
    CHECK(sim.ranks[0].plan.empty());
    sim.submit(sim.size() - 1, allreduce("t", {4}));
    sim.run();
    CHECK_EQ(sim.ranks[0].plan.size(), size_t(1));
    check_agreement(sim);
  }
}

// A cache far too small for the step: ids die while they are under way, and every tensor still arrives.
TEST(evictions_while_ids_are_under_way) {
  for (int64_t capacity : {0, 1, 2, 5}) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const Case c("capacity", capacity, "seed", seed);
      std::mt19937_64 random(seed);
      Settings settings;
      settings.cache_capacity = capacity;
      Simulation sim(12, 2, settings, seed);
      for (int step = 0; step < 6; ++step) {
        for (int r = 0; r < sim.size(); ++r) {
          std::vector<int> order{0, 1, 2, 3, 4, 5, 6};
          shuffle(order, random);
          for (int i : order) sim.submit(r, allreduce("g" + std::to_string(i), {i + 1}));
        }
        sim.run();
        CHECK_EQ(planned_names(sim).size(), size_t(7 * (step + 1)));
      }
      check_agreement(sim);
    }
  }
}

// One rank changes a shape: every rank gets the same error, and the next step works.
TEST(mismatch_fails_everywhere_and_the_engine_goes_on) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Case c("seed", seed);
    Simulation sim(3, 2, Settings{}, seed);
    for (int step = 0; step < 3; ++step) {
      for (int r = 0; r < sim.size(); ++r) sim.submit(r, allreduce("x", {step == 1 && r == 4 ? 5 : 6}));
      sim.run();
    }
    check_agreement(sim);
    const std::vector<Batch>& plan = sim.ranks[0].plan;
    CHECK_EQ(plan.size(), size_t(3));
    if (plan.size() != 3) continue;
    CHECK_EQ(plan[0].error, "");
    CHECK(plan[1].error.find("x") != std::string::npos);
    CHECK(plan[1].error.find("node2") != std::string::npos);  // where the odd one is
    CHECK_EQ(plan[2].error, "");
  }
}

// One rank submits two tensors as a group, the other each for itself; both are told, and then do the same.
TEST(a_group_that_failed_does_not_spoil_the_next) {
  Simulation sim(1, 2, Settings{}, std::nullopt);
  sim.submit(1, allreduce("b", {4}));
  sim.run();
  for (const char* name : {"a", "b"}) sim.submit(0, grouped(name, 0));
  sim.run();
  sim.submit(1, allreduce("a", {4}));
  sim.run();
  const std::vector<Batch>& plan = sim.ranks[0].plan;
  CHECK_EQ(plan.size(), size_t(2));
  for (const Batch& batch : plan) CHECK(batch.error.find("Mismatched groups") != std::string::npos);
  for (int r = 0; r < 2; ++r)
    for (const char* name : {"a", "b"}) sim.submit(r, grouped(name, 0));
  sim.run();
  CHECK_EQ(plan.size(), size_t(3));
  CHECK_EQ(plan.back().error, "");
  CHECK_EQ(plan.back().tensors.size(), size_t(2));
  check_agreement(sim);
}

// What waits for the rest of its group goes with its process set, and does not come back with another of that number.
TEST(a_removed_process_set_takes_its_groups_along) {
  Simulation sim(1, 2, Settings{}, std::nullopt);
  sim.add_set(1, {0, 1});
  for (int r = 0; r < 2; ++r) sim.submit(r, grouped("a", 1));
  sim.run();
  CHECK(sim.ranks[0].plan.empty());
  Description removal;
  removal.name = "process_set.remove";
  removal.kind = kRemoveProcessSet;
  removal.root = 1;
  for (int r = 0; r < 2; ++r) sim.submit(r, removal);
  sim.run();
  sim.add_set(1, {0, 1});
  for (int r = 0; r < 2; ++r)
    for (const char* name : {"a", "b"}) sim.submit(r, grouped(name, 1));
  sim.run();
  const std::vector<Batch>& plan = sim.ranks[0].plan;
  CHECK_EQ(plan.size(), size_t(2));
  CHECK_EQ(plan.back().tensors.size(), size_t(2));
  CHECK(plan.back().tensors[0].value.description.name != plan.back().tensors[1].value.description.name);
  check_agreement(sim);
}

TEST(fusion_respects_type_and_threshold) {
  Settings settings;
  settings.fusion_threshold = 1000;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Case c("seed", seed);
    Simulation sim(2, 2, settings, seed);
    for (int r = 0; r < sim.size(); ++r) {
      for (int i = 0; i < 30; ++i) {
        const int dtype = i % 3 ? HVD_FLOAT32 : HVD_FLOAT64;
        sim.submit(r, allreduce("t" + std::to_string(i), {i == 7 ? 5000 : 10 * (i % 5) + 1}, dtype));
      }
    }
    sim.run();
    check_agreement(sim);
    size_t tensors = 0;
    for (const Batch& b : sim.ranks[0].plan) {
      int64_t bytes = 0;
      for (const PlannedTensor& t : b.tensors) {
        const Description& d = t.value.description;
        CHECK_EQ(d.dtype, b.tensors.front().value.description.dtype);
        bytes += d.elements() * (d.dtype == HVD_FLOAT32 ? 4 : 8);
      }
      CHECK(bytes <= 1000 || b.tensors.size() == 1);
      tensors += b.tensors.size();
    }
    CHECK_EQ(tensors, size_t(30));
  }
}

TEST(process_sets_do_not_wait_for_each_other) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Case c("seed", seed);
    Simulation sim(3, 2, Settings{}, seed);
    sim.add_set(1, {0, 3, 4});
    for (int step = 0; step < 3; ++step) {
      for (int r : {0, 3, 4}) {
        Description d = allreduce("inner", {2});
        d.process_set = 1;
        sim.submit(r, d);
      }
      sim.run();
    }
    CHECK_EQ(sim.ranks[0].executed.size(), size_t(3));
    CHECK_EQ(sim.ranks[1].executed.size(), size_t(0));
    check_agreement(sim);
  }
}

TEST(joined_ranks_are_not_waited_for) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Case c("seed", seed);
    Simulation sim(3, 2, Settings{}, seed);
    for (int r = 0; r < sim.size(); ++r) sim.submit(r, allreduce("g", {2}));
    sim.run();
    sim.join(2);
    sim.join(3);  // all of the second host
    for (int r : {0, 1, 4, 5}) sim.submit(r, allreduce("g", {2}));
    sim.run();
    CHECK_EQ(sim.ranks[0].executed.size(), size_t(2));
    for (int r : {0, 4, 1, 5}) sim.join(r);
    sim.run();
    check_agreement(sim);
    CHECK_EQ(sim.ranks[0].plan.back().kind, int(HVD_JOIN));
    for (int r = 0; r < sim.size(); ++r) sim.submit(r, allreduce("g", {2}));  // the next round starts clean
    sim.run();
    check_agreement(sim);
    CHECK_EQ(sim.ranks[2].executed.size(), size_t(2));
  }
}

TEST(allgather_carries_every_rank_s_rows) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Case c("seed", seed);
    Simulation sim(3, 3, Settings{}, seed);
    for (int step = 0; step < 3; ++step) {
      Description d;
      d.name = "rows";
      d.kind = HVD_ALLGATHER;
      d.dtype = HVD_INT32;
      d.shape = {0, 4};
      for (int r = 0; r < sim.size(); ++r) sim.submit(r, d, r + (step == 2 && r == 5 ? 100 : 0));
      sim.run();
    }
    check_agreement(sim);
    const std::vector<Batch>& plan = sim.ranks[0].plan;
    CHECK_EQ(plan.size(), size_t(3));
    if (plan.size() != 3) continue;
    CHECK(!plan[1].tensors[0].full);  // same rows: by id
    CHECK(plan[2].tensors[0].full);   // one rank's changed
    std::vector<Share> shares = plan[2].tensors[0].value.shares;
    std::sort(shares.begin(), shares.end(), [](const Share& a, const Share& b) { return a.rank < b.rank; });
    CHECK_EQ(shares.size(), size_t(9));
    for (const Share& s : shares) CHECK_EQ(s.dim0, int64_t(s.rank + (s.rank == 5 ? 100 : 0)));
  }
}

TEST(a_thousand_ranks) {
  Simulation sim(128, 8, Settings{}, std::nullopt);
  for (int step = 0; step < 3; ++step) {
    for (int r = 0; r < sim.size(); ++r) {
      for (int i = 0; i < 20; ++i) sim.submit(r, allreduce("g" + std::to_string(i), {i + 1, 64}));
    }
    sim.run();
  }
  check_agreement(sim);
  CHECK_EQ(planned_names(sim).size(), size_t(60));
}
