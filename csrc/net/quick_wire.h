// SPDX-License-Identifier: Apache-2.0
// The leaders of a few hosts meet without a coordinator: as host/quick_round does within a host, over a socket between
// each two of them. In a round every host says one thing to all others, and it cannot be taken back:
//
//   call    this host is at this tensor, and here is its payload
//   close   this host goes another way
//
// All of them hear the same, so all of them come to the same end: the round is full if everybody is at the same tensor,
// closed otherwise. Nobody says anything in the next round before he has heard everybody in this one. Who does not want
// to wait any longer asks (poke): a host that has said nothing yet then closes.
//
//   on the wire = head (32 bytes: what, round, tensor, bytes; up to 16 bytes of payload), its tag
//                 a longer payload; its tag too, where data links are sealed
//
// Heads are always sealed. A connection that is lost while this host has called, and does not know the end, ends the
// job: the other may have found the round full. Otherwise it only ends the short way.
//
// Whoever drives the engine has it, nobody else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "net/link_security.h"
#include "net/open_link.h"
#include "net/seal.h"
#include "util/fd.h"
#include "world/topology.h"

namespace hvd {

// The most that a host may bring. Between more than two, each sends to all others what a ring would cut between them,
// so it is less. Between two a call moves as many bytes as a ring, at half of the steps and without a plan: 128 KiB
// take 60 us instead of 140. But the leader alone reduces what its ranks bring, so it is less where there are many.
size_t quick_wire_bytes(const Topology& topology);
constexpr size_t kQuickWireMost = 512 << 10;

class QuickWire {
 public:
  enum class Outcome { kOpen, kFull, kClosed };

  // Takes its links. Null where there is nothing to connect: one host, very many, or a rank that leads none. Throws
  // Refused when one is missing.
  static std::unique_ptr<QuickWire> make(const Topology& topology, std::vector<OpenLink>& links,
                                         const LinkSecurity& security);

  // Calls. False: this tensor goes another way, since others are at another, or are not done with the round before. The
  // payload may be overwritten afterwards.
  bool arrive(uint32_t id, const char* payload, size_t bytes);
  // How the round stands that this host has called in. Throws JobAborted, again and again, when what was heard is not
  // what was sent, or a while after a connection was lost.
  Outcome look();
  // What a host brought, this one aside; after kFull, until leave().
  const char* payload(int host) const { return peers_[index(host)].payload; }
  // Knows how the round ended, or does not want to any more.
  void leave();
  // This host waits for long: whoever has said nothing shall.
  void poke();

  // Hears what there is, and answers it. Throws as look() does.
  void tend();
  // Others have called, and this host has said nothing.
  bool is_awaited() const;
  // For a host that goes another way: nobody need wait for it.
  void close_for_others();

  // Has input when there is something to tend.
  int descriptor() const { return epoll_.get(); }
  // What a forked child must close.
  std::vector<int> descriptors() const;

 private:
  enum What : uint32_t { kNothing, kCall, kClose, kPoke };
  static constexpr size_t kInline = 16;
  struct Head {
    uint32_t what, round, id, bytes;
    char inlined[kInline];
  };
  static constexpr size_t kHeadBytes = sizeof(Head) + kSealTagBytes;

  struct Peer {
    std::string name;  // "rank 3 on node7"
    UniqueFd fd;
    Seals seals;
    bool lost = false;
    // What found no room yet: the bytes from `flushed` on.
    std::string backlog;
    size_t flushed = 0;
    // Received bytes: [0, used) are of the round, [used, there) have not been looked at.
    std::unique_ptr<char[]> buffer;
    size_t used = 0;
    size_t there = 0;
    size_t missing = 0;      // of a message that has begun
    bool head_open = false;  // the one at `used`
    // What it said in the round; kNothing: not yet.
    What said = kNothing;
    uint32_t id = 0;
    size_t bytes = 0;
    const char* payload = nullptr;
  };

  QuickWire(int me, std::vector<Peer> peers, size_t most, bool seals_payload);
  size_t index(int host) const { return static_cast<size_t>(host < me_ ? host : host - 1); }
  size_t room() const;
  void say(What what, uint32_t id, const char* payload, size_t bytes);
  void send(Peer& peer, Head head, const char* payload);
  void flush(Peer& peer);
  // Whether there is room for more of the backlog is of interest as long as there is one.
  void watch(const Peer& peer, int operation);
  // From all, or only from those who have said nothing yet.
  void receive(bool all);
  void receive(Peer& peer);
  void parse(Peer& peer);
  void open(Peer& peer, char* data, size_t n);
  void lose(Peer& peer);
  bool all_said() const;
  void next_round();
  void fail(const std::string& text);

  const int me_;
  const size_t most_;  // that a host may bring
  const bool seals_payload_;
  std::vector<Peer> peers_;  // by host, without this one
  UniqueFd epoll_;
  uint32_t round_ = 1;
  What said_ = kNothing;  // this host, in the round
  uint32_t id_ = 0;
  size_t bytes_ = 0;
  bool inside_ = false;       // between arrive() and leave()
  double lost_at_ = 0;        // a connection was lost while inside
  std::string failure_;       // once it cannot go on
  std::vector<char> sealed_;  // a payload on its way out
};

}  // namespace hvd
