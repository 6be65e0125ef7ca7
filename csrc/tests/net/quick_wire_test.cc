// SPDX-License-Identifier: Apache-2.0
//
// Hosts that call, wait, ask and go another way as chance has it: for every call either all of them find its round
// full, with what everybody brought to this very call, or none does. And a man in the middle, who cannot change that.
#include "net/quick_wire.h"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/check.h"
#include "tests/describe_world.h"
#include "tests/net/relay.h"
#include "tests/other_way.h"
#include "util/clock.h"
#include "util/status.h"
#include "world/link_plan.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

using Outcome = QuickWire::Outcome;

// One rank on each of so many hosts, linked as planned.
struct Hosts {
  std::vector<std::unique_ptr<Topology>> topologies;
  std::vector<std::unique_ptr<LinkSecurity>> securities;
  std::vector<std::unique_ptr<QuickWire>> wires;

  // left and right: what hosts 0 and 1 hold instead of a connection of their own.
  explicit Hosts(int count, const std::string& mode = "control", UniqueFd left = {}, UniqueFd right = {}) {
    std::vector<int> host_of;
    std::vector<std::string> host_names;
    for (int h = 0; h < count; ++h) {
      host_of.push_back(h);
      host_names.push_back("node" + std::to_string(h));
    }
    std::map<std::pair<int, int>, UniqueFd> sockets;
    if (left) sockets[{0, 1}] = std::move(left);
    if (right) sockets[{1, 0}] = std::move(right);
    for (int h = 0; h < count; ++h) {
      std::vector<const char*> names;
      topologies.push_back(std::make_unique<Topology>(describe_world(h, host_of, host_names, &names)));
      securities.push_back(std::make_unique<LinkSecurity>(*topologies[size_t(h)], mode, ""));
      std::vector<OpenLink> links;
      for (hvd_link link : plan_links(*topologies[size_t(h)], topologies[size_t(h)]->everyone(), 0)) {
        if (link.kind != HVD_LINK_QUICK) continue;
        if (!sockets[{h, link.peer}]) {
          int pair[2];
          if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) std::abort();
          sockets[{h, link.peer}] = UniqueFd(pair[0]);
          sockets[{link.peer, h}] = UniqueFd(pair[1]);
        }
        std::memset(link.key, 1 + h + link.peer, sizeof link.key);
        links.push_back({link, std::move(sockets[{h, link.peer}])});
      }
      wires.push_back(QuickWire::make(*topologies[size_t(h)], links, *securities[size_t(h)]));
    }
  }
  QuickWire& operator[](int host) { return *wires[size_t(host)]; }
};

struct Note {
  int host, call;
};

struct Chances {
  double other_way;     // of a call that does not even try
  double patience;      // seconds, at most
  double wrong_tensor;  // of a host that comes with another id
  size_t bytes;
};

bool wait_until_full(QuickWire& wire, double seconds) {
  const double end = now_s() + seconds;
  for (bool asked = false;;) {
    if (Outcome outcome = wire.look(); outcome != Outcome::kOpen) return outcome == Outcome::kFull;
    if (!asked && now_s() > end) {
      wire.poke();
      asked = true;
    }
    sched_yield();
  }
}

long run(int count, int calls, const Chances& chances, int* went_other_way) {
  Hosts hosts(count, "integrity");
  OtherWay other_way(count);
  std::atomic<long> faults{0};
  std::vector<std::thread> threads;
  for (int host = 0; host < count; ++host) {
    threads.emplace_back([&, host] {
      QuickWire& wire = hosts[host];
      std::mt19937 random(static_cast<unsigned>(host + 1));
      auto chance = [&] { return std::uniform_real_distribution<double>(0, 1)(random); };
      std::vector<char> payload(chances.bytes);
      for (int call = 0; call < calls && !faults; ++call) {
        uint32_t id = 1 + static_cast<uint32_t>(call) % 3;
        if (chance() < chances.wrong_tensor) id = 1000 + static_cast<uint32_t>(host);
        const Note mine{host, call};
        std::memcpy(payload.data(), &mine, sizeof mine);
        bool full = chance() >= chances.other_way && wire.arrive(id, payload.data(), payload.size());
        if (full) {
          full = wait_until_full(wire, chances.patience * chance());
          for (int h = 0; h < count && full; ++h) {
            Note note = mine;
            if (h != host) std::memcpy(&note, wire.payload(h), sizeof note);
            if (note.host != h || note.call != call) ++faults;
          }
          wire.leave();
        }
        if (full) continue;
        if (!other_way.meet(call, [&] {
              wire.tend();
              wire.close_for_others();
            }))
          ++faults;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  *went_other_way = other_way.calls();
  return faults;
}

// What host 1 makes of the bytes: the number it was told by host 0, or what ended it.
std::string heard(QuickWire& wire, const char* mine, size_t bytes) {
  try {
    if (!wire.arrive(5, mine, bytes)) return "another way";
    Outcome outcome = wire.look();
    std::string text = outcome == Outcome::kFull     ? std::string(wire.payload(0), bytes)
                       : outcome == Outcome::kClosed ? "closed"
                                                     : "open";
    wire.leave();
    return text;
  } catch (const JobAborted& e) {
    return e.what();
  }
}

}  // namespace

TEST(all_hosts_or_none) {
  const Chances grid[] = {
      {0, 1e-4, 0, 8},         // impatient
      {0.05, 1e-3, 0, 40},     // now and then one goes another way
      {0.3, 1e-5, 0, 8},       // often
      {0.05, 1e-4, 0.1, 4000}  // and comes with the wrong tensor
  };
  for (const Chances& chances : grid) {
    for (int hosts : {2, 3, 5}) {
      int other = 0;
      const Case c("hosts", hosts, "other way", chances.other_way, "patience", chances.patience);
      CHECK_EQ(run(hosts, 300, chances, &other), 0L);
      if (chances.other_way > 0) CHECK(other > 0);
    }
  }
}

TEST(patient_hosts_always_meet) {
  for (int hosts : {2, 3}) {
    for (size_t bytes : {size_t(8), quick_wire_bytes(*Hosts(hosts).topologies[0])}) {
      int other = 0;
      const Case c("hosts", hosts, "bytes", bytes);
      CHECK_EQ(run(hosts, 200, {0, 1e6, 0, bytes}, &other), 0L);
      CHECK_EQ(other, 0);
    }
  }
}

TEST(many_hosts_and_many_ranks_bring_less) {
  auto most = [](std::vector<int> ranks_of_host) {
    std::vector<int> host_of;
    std::vector<std::string> host_names;
    for (size_t h = 0; h < ranks_of_host.size(); ++h) {
      host_of.insert(host_of.end(), size_t(ranks_of_host[h]), int(h));
      host_names.push_back("node" + std::to_string(h));
    }
    std::vector<const char*> names;
    return quick_wire_bytes(Topology(describe_world(0, host_of, host_names, &names)));
  };
  CHECK_EQ(most({1, 1}), size_t{512} << 10);
  CHECK_EQ(most({1, 4}), size_t{256} << 10);
  CHECK_EQ(most({64, 1}), size_t{64} << 10);
  CHECK_EQ(most({1, 1, 1}), size_t{64} << 10);
  CHECK_EQ(most(std::vector<int>(8, 2)), (size_t{128} << 10) / 7);
}

// Who sleeps while not all of its payload is on its way is woken when there is room for more.
TEST(a_long_payload_goes_on_when_the_other_takes_it) {
  Hosts hosts(2);
  const std::string long_one(quick_wire_bytes(*hosts.topologies[0]), 'x');
  auto is_woken = [&] {
    pollfd fd{hosts[0].descriptor(), POLLIN, 0};
    return poll(&fd, 1, 0) == 1;
  };
  CHECK(hosts[0].arrive(5, long_one.data(), long_one.size()));
  CHECK(hosts[0].look() == Outcome::kOpen);
  CHECK(!is_woken());
  int turns = 0;
  while (!hosts[1].is_awaited() && turns++ < 1000) {
    hosts[1].tend();
    if (is_woken()) hosts[0].tend();
  }
  CHECK(turns > 1);
  CHECK(!is_woken());
  CHECK(!hosts[1].arrive(5, "y", 1));  // of another length
  CHECK(hosts[0].look() == Outcome::kClosed);
}

TEST(who_has_said_nothing_answers_when_asked) {
  Hosts hosts(3);
  CHECK(hosts[0].arrive(7, "1234", 4));
  CHECK(hosts[0].look() == Outcome::kOpen);
  hosts[1].tend();
  CHECK(hosts[1].is_awaited() && !hosts[2].is_awaited());
  hosts[0].poke();
  hosts[1].tend();
  CHECK(!hosts[1].is_awaited());
  CHECK(hosts[0].look() == Outcome::kClosed);
  hosts[0].leave();
  CHECK(!hosts[0].arrive(7, "1234", 4));  // host 2 has still to speak in the round before
  hosts[2].tend();                        // it was asked, too
  for (int h : {0, 1, 2}) CHECK(hosts[h].arrive(8, "1234", 4));
  for (int h : {0, 1, 2}) CHECK(hosts[h].look() == Outcome::kFull);
}

TEST(any_cut_of_the_stream_will_do) {
  for (size_t piece : {1u, 7u, 47u, 49u}) {
    Relay relay;
    Hosts hosts(2, "encrypt", std::move(relay.left), std::move(relay.right));
    std::string left(100, 'a');
    std::string right(100, 'b');
    CHECK(hosts[0].arrive(5, left.data(), left.size()));
    CHECK(hosts[1].arrive(5, right.data(), right.size()));
    const std::string bytes = relay.overheard();
    CHECK(bytes.find("aaaa") == std::string::npos);
    for (size_t at = 0; at < bytes.size(); at += piece) {
      CHECK(hosts[1].look() == Outcome::kOpen);
      relay.pass_on(bytes.substr(at, piece));
    }
    CHECK(hosts[1].look() == Outcome::kFull);
    CHECK_EQ(std::string(hosts[1].payload(0), 100), left);
  }
}

// Every byte, changed: nothing of it is used, but for data that nobody asked to protect.
TEST(an_altered_byte_is_noticed) {
  for (const char* mode : {"control", "integrity", "encrypt"}) {
    for (size_t bytes : {size_t(4), size_t(40)}) {
      const std::string left(bytes, 'a');
      const std::string right(bytes, 'b');
      const size_t head = 48;
      for (size_t at = 0; at < head + (bytes > 16 ? bytes : 0); ++at) {
        const Case c(mode, bytes, "at", at);
        Relay relay;
        Hosts hosts(2, mode, std::move(relay.left), std::move(relay.right));
        CHECK(hosts[0].arrive(5, left.data(), bytes));
        std::string sent = relay.overheard();
        sent[at] = static_cast<char>(sent[at] ^ 4);
        relay.pass_on(sent);
        const std::string got = heard(hosts[1], right.data(), bytes);
        const bool unprotected = std::string(mode) == "control" && at >= head;
        CHECK(unprotected ? got.size() == bytes : got.find("rank 0 on node0 was altered") != std::string::npos);
        CHECK(got != left);
      }
    }
  }
}

TEST(a_repeated_message_is_noticed) {
  Relay relay;
  Hosts hosts(2, "control", std::move(relay.left), std::move(relay.right));
  CHECK(hosts[0].arrive(5, "1234", 4));
  const std::string sent = relay.overheard();
  relay.pass_on(sent + sent);
  CHECK(heard(hosts[1], "5678", 4).find("was altered") != std::string::npos);
}

// In a call it ends the job, though not at once, as the reason may be on its way; otherwise only the short way.
TEST(a_lost_connection) {
  {
    Hosts hosts(2);
    CHECK(hosts[0].arrive(5, "1234", 4));
    hosts.wires[1].reset();
    CHECK(hosts[0].look() == Outcome::kOpen);
    std::string end;
    while (end.empty()) {
      try {
        hosts[0].look();
        sched_yield();
      } catch (const JobAborted& e) {
        end = e.what();
      }
    }
    CHECK(end.find("lost the connection") != std::string::npos);
  }
  {
    Hosts hosts(3);
    hosts.wires[1].reset();
    hosts[0].tend();
    CHECK(!hosts[0].arrive(5, "1234", 4));
    hosts[0].tend();
  }
}
