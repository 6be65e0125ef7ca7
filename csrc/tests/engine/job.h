// SPDX-License-Identifier: Apache-2.0
//
// Several engines in one process, linked as the bootstrap would link them: a job whose threads all stand under
// the sanitizers' eyes. Every rank maps the shared memory for itself, as a process of its own would.
#ifndef HOROVOD_TESTS_ENGINE_JOB_H_
#define HOROVOD_TESTS_ENGINE_JOB_H_

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "control/knobs.h"
#include "engine/engine.h"
#include "host/segment.h"
#include "tests/describe_world.h"
#include "world/link_plan.h"

namespace hvd::testing {

// A number that the engine reports, e.g. "plans".
inline long metric(Engine& engine, const std::string& name) {
  const std::string text = engine.metrics(0);
  return std::stol(text.substr(text.find("\"" + name + "\": ") + name.size() + 4));
}

class Job {
 public:
  // locals[h]: ranks on host h.
  using MorePaths = std::function<std::vector<PathMaker>(int rank)>;
  explicit Job(
      const std::vector<int>& locals, Settings settings = {},
      const MorePaths& more = [](int) { return std::vector<PathMaker>{}; })
      : locals_(locals), slot_bytes_(size_t(staging_bytes(settings))) {
    for (size_t h = 0; h < locals.size(); ++h) {
      names_.push_back("node" + std::to_string(h));
      for (int i = 0; i < locals[h]; ++i) host_of_.push_back(int(h));
      shm_.push_back(locals[h] > 1 ? Segment::create(locals[h], slot_bytes_) : -1);
      bells_.emplace_back();
      for (int i = 0; i < locals[h]; ++i) bells_.back().push_back(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    }
    connect();
    engines_.resize(host_of_.size());
    each([&](int rank) { start(rank, settings, more(rank)); });
    for (auto& list : bells_) {
      for (int fd : list) close(fd);
    }
  }

  ~Job() {
    each([&](int rank) { engines_[size_t(rank)].reset(); });
    for (int fd : shm_) {
      if (fd >= 0) close(fd);
    }
  }

  int size() const { return int(host_of_.size()); }
  Engine& engine(int rank) { return *engines_[size_t(rank)]; }

  // What the ranks of a host share, where there are several, for a test that wants to interfere.
  std::unique_ptr<Segment> shared_memory(size_t host) const {
    return std::make_unique<Segment>(UniqueFd(dup(shm_[host])), locals_[host], slot_bytes_);
  }

  // Runs body(rank) on a thread for every rank.
  void each(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int r = 0; r < size(); ++r) threads.emplace_back([&, r] { body(r); });
    for (std::thread& t : threads) t.join();
  }

 private:
  hvd_world world(int rank, std::vector<const char*>* names) const {
    return describe_world(rank, host_of_, names_, names);
  }

  std::vector<hvd_link> plan(int rank) const {
    std::vector<const char*> names;
    std::vector<int> everyone;
    for (int r = 0; r < size(); ++r) everyone.push_back(r);
    return plan_links(Topology(world(rank, &names)), everyone, 0);
  }

  using End = std::tuple<int, int, int, int>;  // rank, peer, kind, hop

  void connect() {
    for (int r = 0; r < size(); ++r) {
      for (const hvd_link& link : plan(r)) {
        if (sockets_.count({r, link.peer, link.kind, link.hop})) continue;
        const int there = link.kind == HVD_LINK_DATA_OUT  ? int(HVD_LINK_DATA_IN)
                          : link.kind == HVD_LINK_DATA_IN ? int(HVD_LINK_DATA_OUT)
                                                          : link.kind;
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) std::abort();
        sockets_[{r, link.peer, link.kind, link.hop}] = pair[0];
        sockets_[{link.peer, r, there, link.hop}] = pair[1];
      }
    }
  }

  void start(int rank, const Settings& settings, const std::vector<PathMaker>& more) {
    std::vector<const char*> names;
    const size_t host = size_t(host_of_[size_t(rank)]);
    Inheritance given;
    if (locals_[host] > 1) {
      given.shared_memory = UniqueFd(dup(shm_[host]));
      for (int fd : bells_[host]) given.doorbells.emplace_back(dup(fd));
    }
    for (hvd_link link : plan(rank)) {
      std::memset(link.key, 1 + link.kind / HVD_LINK_DATA_OUT, sizeof link.key);  // equal at both ends
      given.links.push_back({link, UniqueFd(sockets_.at({rank, link.peer, link.kind, link.hop}))});
    }
    engines_[size_t(rank)] = std::make_unique<Engine>(Topology(world(rank, &names)), std::move(given), settings, more);
  }

  std::vector<int> locals_, host_of_, shm_;
  const size_t slot_bytes_;
  std::vector<std::vector<int>> bells_;
  std::vector<std::string> names_;
  std::map<End, int> sockets_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

}  // namespace hvd::testing

#endif  // HOROVOD_TESTS_ENGINE_JOB_H_
