// SPDX-License-Identifier: Apache-2.0
#include "engine/quick_call.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "paths/host/quick_reduce.h"
#include "util/clock.h"
#include "util/status.h"

namespace hvd {
namespace {

// Seconds that a rank sleeps in a round before it goes the general way. Ranks that come out of the general way do so
// hundreds of microseconds apart, longer than they spin: if each gave up at once they would never meet again.
constexpr double kRoundPatience = 2e-3;
// Who calls again so many seconds after a call waits, most likely, for ranks that were woken late or lost their core.
// To sleep then would make this rank late for the next call, and so on with all of them: 16 ranks that had come to
// that took 1 ms for 4 bytes, of which others take 10 us. It offers its core soon, too: if it does not get on, the rank
// that it waits for may need this very one.
constexpr double kSoon = 200e-6;
// A rank that has not found out after so many seconds that its round has ended does not get a core.
constexpr double kFrozen = 0.05;
// On one host every rank reduces everybody's: beyond this, each its part is faster.
constexpr size_t kOneHostBytes = 16 << 10;
static_assert(kOneHostBytes <= kQuickBytes && kQuickWireMost <= kQuickBytes);
// Who offers its core while it waits, and has it back only after so many seconds, shares it with somebody; so many
// calls in a row that ended like this: probably with the very rank that it waits for (hosts may be containers of one
// machine).
constexpr double kSharedYield = 3e-6;
constexpr int kSharedCalls = 8;
// How long a host waits, asleep, for others that have said nothing before it asks them.
constexpr double kHostsPatience = 0.05;
// A rank may leave right after a call, and its goodbye be heard before the end of that very call, which comes another
// way: so many seconds later it is not on its way any more. After an outage connections come back one by one, as their
// timers have doubled meanwhile: after 7 s up to 3 s apart.
constexpr double kLastCall = 5.0;

// Whether the request is what all ranks agreed on under its name. That it makes sense was checked then.
bool is_same(const hvd_request& request, const Description& d) {
  if (request.kind != d.kind || d.group || d.wire || (request.device >= 0) != (d.device >= 0)) return false;
  if (request.kind == HVD_BARRIER) return true;
  return request.dtype == d.dtype && request.reduce_op == d.reduce_op && request.prescale == d.prescale &&
         request.postscale == d.postscale && request.ndim == static_cast<int32_t>(d.shape.size()) &&
         std::equal(d.shape.begin(), d.shape.end(), request.shape);
}

// Seconds. Ranks that were woken come one after the other; with many of them, each a core to itself, the first would be
// asleep again before the last is there.
double spin_time(const QuickCall::Options& options, int ranks) {
  return options.spin_us * 1e-6 * (options.crowded ? 1 : std::max(1, ranks / 4));
}

}  // namespace

QuickCall::QuickCall(const Topology& topology, Segment& segment, Doorbells& bells, QuickWire* wire, Table& table,
                     Announcer& announcer, Executor& executor, const Timeline& timeline, Options options,
                     std::function<void()> turn)
    : segment_(segment),
      bells_(bells),
      wire_(wire),
      table_(table),
      announcer_(announcer),
      executor_(executor),
      timeline_(timeline),
      options_(std::move(options)),
      turn_(std::move(turn)),
      spin_s_(spin_time(options_, topology.local_size())),
      me_(topology.local_rank()),
      members_(topology.local_size()),
      hosts_(topology.hosts()),
      my_host_(topology.host()),
      size_(topology.size),
      limit_(hosts_ == 1 ? kOneHostBytes : quick_wire_bytes(topology)),
      round_(segment, me_, members_),
      sources_(static_cast<size_t>(std::max(members_, hosts_))) {}

void QuickCall::tend(bool busy) {
  if (!wire_) return;
  wire_->tend();
  if (wire_->is_awaited() && (busy || table_.outstanding())) wire_->close_for_others();
}

bool QuickCall::run(const hvd_request& request) {
  if (table_.over() || segment_.aborted() || timeline_.active() || table_.outstanding()) return false;
  const Announcer::Known* known = announcer_.find(request.process_set, request.name);
  if (!known || !is_same(request, known->agreed->description)) return false;
  // A turn while waiting may bring a plan that replaces it.
  std::shared_ptr<const Variant> agreed = known->agreed;
  const Description& d = agreed->description;
  size_t bytes = d.kind == HVD_BARRIER ? 0 : static_cast<size_t>(payload_bytes(d, {}));
  if (bytes && (!request.input || !request.output)) return false;
  if (d.device >= 0) return run_on_device(*known, agreed, bytes, request);
  if (size_ > 1 && bytes > limit_) return false;
  double since = now_s();
  executor_.began_quickly(d);
  if (size_ > 1) {
    if (!come(known->id, d, bytes, request, since)) return false;
  } else if (bytes) {
    quick_alone(d, bytes, request.input, request.output);
  }
  ended_ = executor_.ended_quickly(d, bytes, since);
  return true;
}

// The ranks tell each other that they are there; what they bring meets on the devices.
bool QuickCall::run_on_device(const Announcer::Known& known, const std::shared_ptr<const Variant>& agreed, size_t bytes,
                              const hvd_request& request) {
  DeviceCall call;
  if (hosts_ > 1 || known.share.device != request.device) return false;
  if (!executor_.prepare_quickly(request, agreed, &call)) return false;
  const Description& d = agreed->description;
  double since = now_s();
  executor_.began_quickly(d);
  if (size_ > 1 && !come(known.id, d, 0, request, since)) return false;
  if (!executor_.start_quickly(call)) return false;
  ended_ = executor_.ended_quickly(d, bytes, since);
  return true;
}

bool QuickCall::come(uint32_t id, const Description& d, size_t bytes, const hvd_request& request, double now) {
  soon_ = now - ended_ < kSoon;
  offer_.begin();
  bool met = meet(id, d, bytes, request);
  if (std::exchange(slept_, false)) executor_.waits_quickly(nullptr, 0);
  return met;
}

bool QuickCall::meet(uint32_t id, const Description& d, size_t bytes, const hvd_request& request) {
  if (members_ == 1) return meet_hosts(id, d, bytes, request);
  if (!options_.crowded) segment_.note_core(me_);
  if (!round_.arrive(id, [&](char* room) {
        if (bytes) quick_pack(d, bytes, request.input, room);
      }))
    return false;
  bool full = round_.look() == QuickRound::Outcome::kFull;
  if (full) round_.wake();  // this rank came last; or another did just now, and they are woken twice
  else full = wait_until_full(d);
  met_ += full;
  if (full && hosts_ > 1) {
    full = me_ == 0 ? meet_hosts(id, d, bytes, request) : wait_for_leader(d);
    if (full && bytes) std::memcpy(request.output, round_.payload(0), bytes);
  } else if (full && bytes) {
    for (int local = 0; local < members_; ++local) sources_[local] = round_.payload(local);
    quick_reduce(d, bytes, sources_.data(), members_, members_, request.output);
  }
  round_.leave();
  return full;
}

bool QuickCall::meet_hosts(uint32_t id, const Description& d, size_t bytes, const hvd_request& request) {
  const char* own = bytes ? of_my_host(d, bytes, request) : nullptr;
  bool full = false;
  try {
    full = wire_->arrive(id, own, bytes) && wait_for_hosts(d);
  } catch (const JobAborted&) {  // the next turn meets it again, and ends the job
  }
  if (full && bytes) {
    for (int host = 0; host < hosts_; ++host) sources_[host] = host == my_host_ ? own : wire_->payload(host);
    void* out = members_ > 1 ? round_.own_payload() : request.output;
    quick_reduce(d, bytes, sources_.data(), hosts_, size_, out);
  }
  wire_->leave();
  if (members_ > 1) {
    segment_.header().quick_end.store(end_of(met_, full), std::memory_order_release);
    for (int local = 1; local < members_; ++local) bells_.ring(local);
  }
  return full;
}

const char* QuickCall::of_my_host(const Description& d, size_t bytes, const hvd_request& request) {
  if (members_ > 1) {
    for (int local = 0; local < members_; ++local) sources_[local] = round_.payload(local);
    quick_combine(d, bytes, sources_.data(), members_, round_.own_payload());
    return round_.own_payload();
  }
  // A large tensor is read where it lies. A small one may be a flag that another thread sets meanwhile: what is reduced
  // here is what was sent.
  if (d.prescale == 1.0 && bytes > kOneHostBytes) return static_cast<const char*>(request.input);
  if (own_.size() < bytes) own_.resize(bytes);
  quick_pack(d, bytes, request.input, own_.data());
  return own_.data();
}

bool QuickCall::wait_until_full(const Description& d) {
  using Outcome = QuickRound::Outcome;
  uint32_t bell = bells_.count();
  bool yields = options_.crowded;
  double start = 0;
  for (;;) {
    for (int i = 0; i < (yields ? 1 : 32); ++i) {
      if (Outcome outcome = round_.look(); outcome != Outcome::kOpen) return outcome == Outcome::kFull;
      cpu_relax();
    }
    double now = now_s();
    if (start == 0) {  // not all of them were about to come
      start = now;
      yields |= !options_.crowded && segment_.shares_core(me_, core_, now);
    }
    if (uint32_t rung = bells_.count(); rung != bell) {
      // A turn may start what another thread submitted, after the round is full: others have this call before it.
      if (d.device >= 0) {
        if (Outcome outcome = round_.close(); outcome != Outcome::kOpen) return outcome == Outcome::kFull;
      } else {
        bell = rung;
        turn_();
      }
    }
    if (segment_.aborted() || table_.over()) return round_.look() == Outcome::kFull;
    const double waited = now - start;
    if (waited < spin_s_) {
      if (yields || ((hosts_ > 1 || soon_) && offer_.due(waited))) sched_yield();
    } else if (soon_ && !options_.crowded && waited < kRoundPatience) {
      sched_yield();
    } else if (waited < kRoundPatience) {
      round_.sleep(kRoundPatience / 2);  // a bell may ring meanwhile
    } else if (Outcome outcome = round_.close(); outcome != Outcome::kOpen) {
      return outcome == Outcome::kFull;
    } else if (waited < kFrozen) {
      usleep(20);  // a rank has to find out about an earlier round first
    } else {
      falls_asleep(d, start);  // it takes so long that it may be stopped: those who watch name it
      usleep(1000);
    }
  }
}

void QuickCall::falls_asleep(const Description& d, double since) {
  if (!std::exchange(slept_, true)) executor_.waits_quickly(&d, since);
}

bool QuickCall::wait_for_hosts(const Description& d) {
  using Outcome = QuickWire::Outcome;
  uint32_t bell = bells_.count();
  double start = 0;
  double offered = 0;  // when the core was
  double over_since = 0;
  bool asked = false;
  for (;;) {
    Outcome outcome = wire_->look();
    double now = now_s();
    if (outcome != Outcome::kOpen) {
      if (start > 0) offer_.ended(now - start);
      if (offered > 0) shared_calls_ = now - offered > kSharedYield ? shared_calls_ + 1 : 0;
      if (shared_calls_ >= kSharedCalls && my_host_ > 0 && !options_.crowded) {
        segment_.make_way(me_, core_, now);
        shared_calls_ = 0;
      }
      return outcome == Outcome::kFull;
    }
    if (start == 0) start = now;
    bool sleeps = (now - start) * 1e6 >= options_.hosts_spin_us;
    bool offers = !sleeps && (options_.crowded || offer_.due(now - start));
    offered = offers ? now : 0;
    if (sleeps) {
      if (!asked && now - start >= kHostsPatience) {
        wire_->poke();
        asked = true;
      }
      falls_asleep(d, start);
      bells_.sleep(bell, kHostsPatience, options_.sockets);
    } else if (offers) {
      sched_yield();
    }
    if (uint32_t rung = bells_.count(); sleeps || rung != bell) {
      bell = rung;
      turn_();
    }
    if (is_lost(kLastCall, now, &over_since)) return false;
  }
}

bool QuickCall::wait_for_leader(const Description& d) {
  const std::atomic<uint32_t>& end = segment_.header().quick_end;
  uint32_t bell = bells_.count();
  double start = now_s();
  double over_since = 0;
  for (;;) {
    double waited = now_s() - start;
    if (uint32_t told = end.load(std::memory_order_acquire); is_of(told, met_)) {
      offer_.ended(waited);
      return told & 1;
    }
    if (waited * 1e6 >= options_.hosts_spin_us) {
      falls_asleep(d, start);
      bells_.sleep(bell, 1.0, {});
    } else if (options_.crowded || offer_.due(waited)) {
      sched_yield();
    }
    if (uint32_t rung = bells_.count(); rung != bell) {
      bell = rung;
      turn_();
    }
    if (is_lost(2 * kLastCall, start + waited, &over_since)) return false;  // the leader waits for the hosts first
  }
}

bool QuickCall::is_lost(double patience, double now, double* over_since) {
  if (segment_.aborted()) return true;
  if (!table_.over()) return false;
  if (*over_since == 0) *over_since = now;
  return now - *over_since > patience;
}

}  // namespace hvd
