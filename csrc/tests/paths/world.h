// SPDX-License-Identifier: Apache-2.0
//
// A job inside one process: a thread for every rank, a Segment for every host, a pair of sockets for every
// data link. What runs between processes otherwise runs here under the thread sanitizer's eyes.
#ifndef HOROVOD_TESTS_PATHS_WORLD_H_
#define HOROVOD_TESTS_PATHS_WORLD_H_

#include <sys/socket.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "host/lane.h"
#include "host/segment.h"
#include "paths/host/comm.h"
#include "paths/host/transport.h"
#include "tests/describe_world.h"
#include "world/link_plan.h"
#include "world/topology.h"

namespace hvd::testing {

struct RankContext {
  int rank, size;
  Comm& comm;
  uint64_t seq = 0;

  // One batch, as the engine runs it.
  template <class F>
  void batch(bool light, const F& body) {
    comm.begin(++seq, light);
    body();
    comm.end();
  }
};

class World {
 public:
  enum Sealing { kPlain, kAuthenticate, kEncrypt };
  // locals[h]: ranks on host h. Small slots make many chunks of little data.
  World(std::vector<int> locals, size_t slot_bytes, Sealing sealing = kPlain)
      : locals_(std::move(locals)), sealing_(sealing) {
    for (size_t h = 0; h < locals_.size(); ++h) {
      names_.push_back("node" + std::to_string(h));
      segments_.push_back(std::make_unique<Segment>(UniqueFd(), locals_[h], slot_bytes));
      for (int i = 0; i < locals_[h]; ++i) host_of_.push_back(int(h));
    }
  }

  int size() const { return int(host_of_.size()); }
  std::string text() const {
    std::string t;
    for (int n : locals_) t += (t.empty() ? "" : "+") + std::to_string(n);
    return t;
  }

  // Runs body on every rank, over the process set of all ranks or of these.
  void run(const std::function<void(RankContext&)>& body, std::vector<int> members = {}) {
    if (members.empty()) {
      for (int r = 0; r < size(); ++r) members.push_back(r);
    }
    connect(members);
    std::vector<std::thread> threads;
    for (int r : members) threads.emplace_back([&, r] { run_rank(r, members, body); });
    for (std::thread& t : threads) t.join();
    first_seq_ += 1000;
  }

 private:
  Topology topology(int rank) const {
    std::vector<const char*> names;
    return Topology(describe_world(rank, host_of_, names_, &names));
  }

  void connect(const std::vector<int>& members) {
    sockets_.clear();
    for (int r : members) {
      for (const hvd_link& link : plan_links(topology(r), members, 1)) {
        if (link.kind != HVD_LINK_DATA_OUT) continue;
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) std::abort();
        sockets_[{r, HVD_LINK_DATA_OUT, link.hop}] = pair[0];
        sockets_[{link.peer, HVD_LINK_DATA_IN, link.hop}] = pair[1];
      }
    }
  }

  void run_rank(int rank, const std::vector<int>& members, const std::function<void(RankContext&)>& body) {
    const Topology topology = this->topology(rank);
    Lane lane(*segments_[size_t(host_of_[size_t(rank)])], topology.local_rank(), 0.0, true, true);
    Comm comm(topology, lane, std::make_shared<const SetLayout>(topology, members));
    std::vector<DataLink> out, in;
    for (const hvd_link& link : plan_links(topology, members, 1)) {
      const bool sends = link.kind == HVD_LINK_DATA_OUT;
      auto& list = sends ? out : in;
      list.push_back({UniqueFd(sockets_.at({rank, link.kind, link.hop})), seal(sends ? Seal::kSender : Seal::kReceiver),
                      topology.describe(link.peer)});
    }
    if (!out.empty()) comm.attach(make_tcp_transport(std::move(out), std::move(in), [&] { lane.check(); }));
    RankContext context{rank, size(), comm, first_seq_};
    body(context);
  }

  std::unique_ptr<Seal> seal(Seal::Role role) const {
    static const uint8_t key[kSealKeyBytes] = {3};
    if (sealing_ == kPlain) return nullptr;
    return std::make_unique<Seal>(Crypto::load(""), key, "data", role, sealing_ == kEncrypt);
  }

  const std::vector<int> locals_;
  const Sealing sealing_;
  std::vector<int> host_of_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<Segment>> segments_;
  std::map<std::tuple<int, int, int>, int> sockets_;  // rank, direction, hop
  uint64_t first_seq_ = 0;
};

inline std::vector<std::vector<int>> worlds() {
  return {{1}, {2}, {3}, {5}, {1, 1}, {2, 2}, {3, 1}, {1, 1, 1}, {2, 3, 1}, {1, 1, 1, 1, 1}, {2, 2, 2, 2}};
}

}  // namespace hvd::testing

#endif  // HOROVOD_TESTS_PATHS_WORLD_H_
