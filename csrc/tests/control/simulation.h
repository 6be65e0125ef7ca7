// SPDX-License-Identifier: Apache-2.0
//
// The control plane without processes: all ranks of a job in one thread, their messages in queues, every
// message encoded and parsed as on the wire. Deliveries happen in a random order (seeded), so that a test
// sees interleavings no real run would show twice; or in a fixed one, to measure.
#ifndef HOROVOD_TESTS_CONTROL_SIMULATION_H_
#define HOROVOD_TESTS_CONTROL_SIMULATION_H_

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "control/aggregator.h"
#include "control/coordinator.h"
#include "control/message.h"
#include "util/settings.h"
#include "world/topology.h"

namespace hvd::testing {

// What one rank knows: the tensors it waits for and the ids it may use instead of a description.
struct SimulatedRank {
  std::map<std::string, Variant> pending;
  std::map<std::string, uint32_t> id_of;
  std::map<uint32_t, Variant> by_id;
  std::map<uint32_t, std::string> sent;  // ids sent, whose tensors are not executed yet
  std::vector<Batch> plan;               // all batches, as every rank sees them
  std::vector<std::string> executed;     // names of the tensors this rank had submitted
};

// One host's leader, with its local ranks first among its sources and the leaders under it after them.
struct SimulatedHost {
  std::unique_ptr<Aggregator> aggregator;
  std::vector<int> ranks, children;
  int parent = -1;
};

struct Traffic {
  uint64_t to_root = 0, to_root_bytes = 0;      // messages from other hosts that the coordinator reads
  uint64_t from_root = 0, from_root_bytes = 0;  // and that it writes
  uint64_t all = 0;
  double root_seconds = 0;  // time spent by the coordinator's process
};

class Simulation {
 public:
  Simulation(int hosts, int ranks_per_host, const Settings& settings, std::optional<uint64_t> seed)
      : settings_(settings), random_(seed.value_or(0)), shuffle_(seed.has_value()) {
    const int size = hosts * ranks_per_host;
    std::vector<int> host_of(size);
    for (int r = 0; r < size; ++r) host_of[r] = r / ranks_per_host;
    std::vector<std::string> names;
    std::vector<const char*> pointers;
    for (int h = 0; h < hosts; ++h) names.push_back("node" + std::to_string(h));
    for (const std::string& n : names) pointers.push_back(n.c_str());
    hvd_world world{};
    world.struct_size = sizeof world;
    world.size = size;
    world.n_hosts = hosts;
    world.host_of_rank = host_of.data();
    world.host_names = pointers.data();
    world.shm_fd = -1;
    topology_ = std::make_unique<Topology>(world);

    ranks.resize(size);
    hosts_.resize(hosts);
    for (int h = 0; h < hosts; ++h) make_host(h, hosts);
    coordinator_ = std::make_unique<Coordinator>(*topology_, settings_, *hosts_[0].aggregator);
    std::vector<int> everyone(size);
    for (int r = 0; r < size; ++r) everyone[r] = r;
    add_set(0, everyone);
  }

  int size() const { return int(ranks.size()); }

  void add_set(int id, const std::vector<int>& members) {
    for (SimulatedHost& h : hosts_) h.aggregator->add_set(id, members);
  }

  void submit(int rank, const Description& d, int64_t dim0 = 0) {
    SimulatedRank& r = ranks[rank];
    Variant v{d, {{rank, dim0, {}}}};
    r.pending[d.name] = v;
    auto known = r.id_of.find(d.name);
    if (known != r.id_of.end()) {
      const Variant& before = r.by_id.at(known->second);
      if (before.description == d && before.shares == v.shares) return send_ids(rank, {known->second});
    }
    post(topology_->host_of_rank[rank], source_of_local(rank), encode_ready_full({v}));
  }

  // Several cached tensors in one message, as a rank sends what became ready together.
  void submit_cached(int rank, const std::vector<std::string>& names) {
    std::vector<uint32_t> ids;
    for (const std::string& n : names) {
      ids.push_back(ranks[rank].id_of.at(n));
      ranks[rank].pending[n] = ranks[rank].by_id.at(ids.back());
    }
    send_ids(rank, ids);
  }

  void join(int rank) { post(topology_->host_of_rank[rank], source_of_local(rank), encode_join(rank)); }

  // Delivers until nothing is under way. The coordinator plans when it finds no more input, or, in random
  // order, also in between.
  void run() {
    for (;;) {
      while (!up_.empty() || !down_.empty()) {
        deliver_one();
        if (shuffle_ && random_() % 4 == 0) plan();
      }
      if (!plan()) return;
    }
  }

  std::vector<SimulatedRank> ranks;
  Traffic traffic;

 private:
  struct Up {
    int host, source;
    std::string bytes;
  };
  struct Down {
    int host, source;  // to a leader: source -1; to a local rank: its index
    std::string bytes;
  };
  using Clock = std::chrono::steady_clock;

  void make_host(int h, int hosts) {
    SimulatedHost& host = hosts_[h];
    host.ranks = topology_->ranks_of_host[h];
    host.children = tree_children(h, hosts);
    host.parent = tree_parent(h);
    std::vector<std::vector<int>> sources;
    for (int r : host.ranks) sources.push_back({r});
    for (int child : host.children) {
      std::vector<int> below;
      for (int g : tree_subtree(child, hosts)) {
        below.insert(below.end(), topology_->ranks_of_host[g].begin(), topology_->ranks_of_host[g].end());
      }
      sources.push_back(below);
    }
    host.aggregator = std::make_unique<Aggregator>(sources);
  }

  int source_of_local(int rank) const { return topology_->local_rank_of[rank]; }
  int source_of_child(int host) const {
    const SimulatedHost& parent = hosts_[hosts_[host].parent];
    for (size_t i = 0; i < parent.children.size(); ++i) {
      if (parent.children[i] == host) return int(parent.ranks.size() + i);
    }
    return -1;
  }

  void post(int host, int source, std::string bytes) { up_[{host, source}].push_back(std::move(bytes)); }

  void deliver_one() {
    const size_t n = up_.size() + down_.size();
    // In the fixed order the leaves speak first, so that the coordinator reads its messages in one go.
    size_t pick = shuffle_ ? random_() % n : up_.empty() ? 0 : up_.size() - 1;
    ++traffic.all;
    if (pick < up_.size()) {
      auto it = std::next(up_.begin(), ptrdiff_t(pick));
      const Up message{it->first.first, it->first.second, std::move(it->second.front())};
      it->second.pop_front();
      if (it->second.empty()) up_.erase(it);
      deliver(message);
    } else {
      pick -= up_.size();
      auto it = std::next(down_.begin(), ptrdiff_t(pick));
      const Down message{it->first.first, it->first.second, std::move(it->second.front())};
      it->second.pop_front();
      if (it->second.empty()) down_.erase(it);
      deliver(message);
    }
  }

  void deliver(const Up& up) {
    SimulatedHost& host = hosts_[up.host];
    const bool at_root = up.host == 0;
    const auto start = Clock::now();
    FrameParser parser;
    parser.feed(up.bytes.data(), up.bytes.size());
    MessageType type;
    std::string_view body;
    while (parser.next(&type, &body)) {
      Reader in(body);
      if (type == MessageType::ReadyCached) {
        for (uint32_t id : host.aggregator->ready_cached(up.source, decode_ready_cached(in), 0.0)) {
          down_[{up.host, up.source}].push_back(encode_need_full(id));
        }
      } else if (type == MessageType::ReadyFull) {
        int32_t last_rank = -1;
        auto variants = decode_variants(in, &last_rank);
        host.aggregator->ready_full(up.source, std::move(variants), 0.0, last_rank);
      } else if (type == MessageType::Join) {
        const int rank = in.get<int32_t>();
        host.aggregator->join(rank);
        if (!at_root) post(host.parent, source_of_child(up.host), encode_join(rank));
      }
    }
    forward_complete(up.host);
    if (at_root) {
      traffic.root_seconds += std::chrono::duration<double>(Clock::now() - start).count();
      if (up.source >= int(host.ranks.size())) {
        ++traffic.to_root;
        traffic.to_root_bytes += up.bytes.size();
      }
    }
  }

  // What is complete below a host goes to the coordinator, or one level up: ids in one message.
  void forward_complete(int h) {
    SimulatedHost& host = hosts_[h];
    ReadyIds ready;
    std::vector<std::string> full;
    for (Complete& c : host.aggregator->take_complete()) {
      if (h == 0) {
        coordinator_->accept(std::move(c));
      } else if (c.cached_id) {
        host.aggregator->sent_up(c.cached_id);
        ready.ids.push_back(c.cached_id);
        ready.last_ranks.push_back(c.last_rank);
      } else {
        full.push_back(encode_ready_full(c.variants, c.last_rank));
      }
    }
    if (h == 0) return;
    if (!ready.ids.empty()) post(host.parent, source_of_child(h), encode_ready_cached(ready.ids, ready.last_ranks));
    for (std::string& bytes : full) post(host.parent, source_of_child(h), std::move(bytes));
  }

  bool plan() {
    if (!coordinator_->has_work()) return false;
    const auto start = Clock::now();
    const Plan p = coordinator_->schedule();
    hosts_[0].aggregator->apply(p);
    const std::string bytes = encode_plan(p);
    traffic.root_seconds += std::chrono::duration<double>(Clock::now() - start).count();
    traffic.from_root += hosts_[0].children.size();
    traffic.from_root_bytes += hosts_[0].children.size() * bytes.size();
    send_down(0, bytes);
    forward_complete(0);
    return true;
  }

  void send_down(int h, const std::string& bytes) {
    const int sources = int(hosts_[h].ranks.size() + hosts_[h].children.size());
    for (int s = 0; s < sources; ++s) down_[{h, s}].push_back(bytes);
  }

  void deliver(const Down& down) {
    SimulatedHost& host = hosts_[down.host];
    FrameParser parser;
    parser.feed(down.bytes.data(), down.bytes.size());
    MessageType type;
    std::string_view body;
    while (parser.next(&type, &body)) {
      Reader in(body);
      if (down.source < int(host.ranks.size())) {
        at_rank(host.ranks[down.source], type, in);
      } else {
        at_leader(host.children[down.source - int(host.ranks.size())], type, in, down.bytes);
      }
    }
  }

  void at_leader(int h, MessageType type, Reader& in, const std::string& bytes) {
    if (type == MessageType::Plan) {
      hosts_[h].aggregator->apply(decode_plan(in));
      send_down(h, bytes);
    } else {
      for (uint32_t id : decode_ids(in)) hosts_[h].aggregator->expand(id);
    }
    forward_complete(h);
  }

  void at_rank(int rank, MessageType type, Reader& in) {
    SimulatedRank& r = ranks[rank];
    if (type == MessageType::NeedFull) {
      for (uint32_t id : decode_ids(in)) resend(rank, id);
      return;
    }
    const Plan p = decode_plan(in);
    for (const Batch& b : p.batches) {
      r.plan.push_back(b);
      for (const PlannedTensor& t : b.tensors) execute(r, t, b.error.empty());
    }
    for (uint32_t id : p.evicted) {
      auto it = r.by_id.find(id);
      if (it == r.by_id.end()) continue;
      auto name = r.id_of.find(it->second.description.name);
      if (name != r.id_of.end() && name->second == id) r.id_of.erase(name);
      r.by_id.erase(it);
    }
  }

  static void execute(SimulatedRank& r, const PlannedTensor& t, bool ok) {
    auto known = r.by_id.find(t.id);
    if (!t.full && known == r.by_id.end()) return;  // of a process set this rank is not in
    const std::string name = t.full ? t.value.description.name : known->second.description.name;
    auto mine = r.pending.find(name);
    if (mine == r.pending.end()) return;
    r.executed.push_back(name);
    r.sent.erase(t.id);
    if (ok && t.id && t.full) {
      r.by_id[t.id] = std::move(mine->second);
      r.id_of[name] = t.id;
    }
    r.pending.erase(mine);
  }

  void send_ids(int rank, const std::vector<uint32_t>& ids) {
    SimulatedRank& r = ranks[rank];
    for (uint32_t id : ids) r.sent[id] = r.by_id.at(id).description.name;
    post(topology_->host_of_rank[rank], source_of_local(rank), encode_ready_cached(ids));
  }

  void resend(int rank, uint32_t id) {
    SimulatedRank& r = ranks[rank];
    auto it = r.sent.find(id);
    if (it == r.sent.end()) return;
    post(topology_->host_of_rank[rank], source_of_local(rank), encode_ready_full({r.pending.at(it->second)}));
    r.sent.erase(it);
  }

  Settings settings_;
  std::mt19937_64 random_;
  bool shuffle_;
  std::unique_ptr<Topology> topology_;
  std::vector<SimulatedHost> hosts_;
  std::unique_ptr<Coordinator> coordinator_;
  std::map<std::pair<int, int>, std::deque<std::string>> up_, down_;
};

}  // namespace hvd::testing

#endif  // HOROVOD_TESTS_CONTROL_SIMULATION_H_
