// SPDX-License-Identifier: Apache-2.0
// Sees that a neighbour died and tells everybody.
//
// Every rank keeps a socket to its host leader, and leaders to their neighbours in the tree, on which nothing is sent
// while all is well: the kernel closes it the moment the other process ends, however it ends. The first to notice
// floods one obituary through the tree. A thread of its own reads these sockets, so that a rank stuck in a
// collective still hears.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "net/link_security.h"
#include "net/open_link.h"
#include "net/seal.h"
#include "util/fd.h"
#include "world/topology.h"

namespace hvd {

class Liveness {
 public:
  struct Callbacks {
    std::function<void(const std::string&)> aborted;          // the job is over, and why
    std::function<void(const std::string&)> said_goodbye;     // a neighbour shut down in order, and why
    std::function<std::string(int rank)> last_words;          // what a neighbour was doing, "" if unknown
    std::function<std::string()> where;                       // this rank's Python line, then its stacks
    std::function<void(int rank, const std::string&)> found;  // answer to ask_where
    std::function<void(const std::string&)> write_down;       // what this rank did last, and why that is wanted
    std::function<void(int64_t)> clock;  // what to add to this host's clock, in microseconds, to get rank 0's
    std::function<void()> tick;          // a few times a second
  };

  // links: the watch links among them are taken over. Those to other hosts are sealed.
  Liveness(const Topology& topology, std::vector<OpenLink>& links, const LinkSecurity& security, Callbacks callbacks);
  ~Liveness() { stop(""); }

  void start();

  // Tells all ranks, as if a rank had died. Safe from any thread.
  void broadcast_abort(const std::string& text);
  // Asks a rank for its Python line and stacks; `found` is called when it answers.
  void ask_where(int rank);
  // Asks all ranks, this one too, to write down what they did last.
  void ask_to_write_down(const std::string& why);
  // A neighbour that does not answer at all is frozen: its rank, or -1. Asks again at each call.
  int silent_neighbour(double patience_s);
  // From now on neighbours may close their sockets without being dead.
  void expect_goodbyes() { quiet_ = true; }
  // Says goodbye to the neighbours, with the reason, and ends the thread. Only the first call counts.
  void stop(const std::string& why);
  std::vector<int> descriptors() const;

 private:
  // kHere ends what kHerePart began.
  enum Type : uint32_t { kAbort = 1, kGoodbye, kPing, kPong, kWhere, kHere, kHerePart, kWriteDown, kClock, kTime };
  struct Message {
    uint32_t magic;
    uint32_t type;
    int32_t rank;
    uint32_t generation;
    char text[1008];
  };
  struct Peer {
    size_t wire_bytes() const { return sizeof(Message) + (seals.in ? kSealTagBytes : 0); }

    int rank;
    UniqueFd fd;
    Seals seals;           // seals.out is guarded by send_mutex_
    std::string outgoing;  // guarded by send_mutex_: what found no room yet
    bool goodbye = false;
    bool open = true;
    double asked = 0;     // when the unanswered ping was sent
    double answered = 0;  // when the last answer came
    std::string partial;
  };

  void loop();
  void read(Peer& peer);
  void handle(Peer& peer, const Message& message);
  void died(Peer& peer, const std::string& how);
  void end_job(const Peer& peer, const std::string& text);
  void send(Peer& peer, Type type, int rank, const std::string& text);
  void flush_locked(Peer& peer);
  void flood(Type type, int rank, const std::string& text, const Peer* except);
  // Runs something that may wait for Python or a disk: this rank goes on watching meanwhile.
  void errand(std::function<void()> body);
  void ask_clock();
  void tell_clock(Peer& peer, const std::string& asked);
  void learn_clock(const std::string& told);

  const Topology& topology_;
  const Callbacks callbacks_;
  std::vector<Peer> peers_;  // the list is fixed; what a peer has said belongs to the watch thread
  std::mutex send_mutex_;    // held while a message is sealed and written
  const UniqueFd wake_fd_;
  std::atomic<bool> quiet_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> aborted_{false};
  std::map<int, std::string> here_;  // by rank: parts of an answer; the watch thread's
  std::mutex errand_mutex_;          // guards the next three
  std::deque<std::function<void()>> errands_;
  bool running_errands_ = false;
  std::thread errand_thread_;
  // Clocks: the watch thread's.
  bool clock_known_;
  int64_t clock_offset_us_ = 0;
  int64_t clock_round_trip_us_ = 0;
  double clock_asked_ = 0;
  std::thread thread_;
};

}  // namespace hvd
