// SPDX-License-Identifier: Apache-2.0
#include "engine/quick_call.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "paths/host/quick_reduce.h"
#include "util/clock.h"

namespace hvd {
namespace {

// Seconds that a rank sleeps in a round before it goes the general way. Ranks that come out of the general way do so
// hundreds of microseconds apart, longer than they spin: if each gave up at once they would never meet again.
constexpr double kPatience = 2e-3;

// Whether the request is what all ranks agreed on under its name. That it makes sense was checked then.
bool is_same(const hvd_request& request, const Description& d) {
  if (request.kind != d.kind || d.group || d.device >= 0) return false;
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

QuickCall::QuickCall(const Topology& topology, Segment& segment, Doorbells& bells, Table& table, Announcer& announcer,
                     Executor& executor, const Timeline& timeline, Options options, std::function<void()> turn)
    : segment_(segment),
      bells_(bells),
      table_(table),
      announcer_(announcer),
      executor_(executor),
      timeline_(timeline),
      options_(options),
      turn_(std::move(turn)),
      spin_s_(spin_time(options, topology.local_size())),
      me_(topology.local_rank()),
      members_(topology.local_size()),
      round_(segment, me_, members_),
      sources_(static_cast<size_t>(members_)) {}

bool QuickCall::run(const hvd_request& request) {
  if (table_.over() || segment_.aborted() || timeline_.active() || table_.outstanding()) return false;
  const Announcer::Known* known = announcer_.find(request.process_set, request.name);
  if (!known || !is_same(request, known->agreed->description)) return false;
  // A turn while waiting may bring a plan that replaces it.
  std::shared_ptr<const Variant> agreed = known->agreed;
  const Description& d = agreed->description;
  size_t bytes = d.kind == HVD_BARRIER ? 0 : static_cast<size_t>(payload_bytes(d, {}));
  if (bytes && (!request.input || !request.output)) return false;
  if (members_ > 1 && bytes > kQuickBytes) return false;
  double since = now_s();
  executor_.began_quickly(d);
  if (members_ > 1) {
    if (!meet(known->id, d, bytes, request)) return false;
  } else if (bytes) {
    quick_alone(d, bytes, request.input, request.output);
  }
  executor_.ended_quickly(d, bytes, since);
  return true;
}

bool QuickCall::meet(uint32_t id, const Description& d, size_t bytes, const hvd_request& request) {
  if (!round_.arrive(id, [&](char* room) {
        if (bytes) quick_pack(d, bytes, request.input, room);
      }))
    return false;
  bool full = round_.look() == QuickRound::Outcome::kFull;
  if (full) round_.wake();  // this rank came last; or another did just now, and they are woken twice
  else full = wait_until_full();
  if (full && bytes) {
    for (int local = 0; local < members_; ++local) sources_[local] = round_.payload(local);
    quick_reduce(d, bytes, sources_.data(), members_, request.output);
  }
  round_.leave();
  return full;
}

bool QuickCall::wait_until_full() {
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
      if (!yields && segment_.rival_on_core(me_)) yields = me_ == 0 || !core_.leave(now);
    }
    if (uint32_t rung = bells_.count(); rung != bell) {
      bell = rung;
      turn_();
    }
    if (segment_.aborted() || table_.over()) return round_.look() == Outcome::kFull;
    const double waited = now - start;
    if (waited < spin_s_) {
      if (yields) sched_yield();
    } else if (waited < kPatience) {
      round_.sleep(kPatience / 2);  // a bell may ring meanwhile
    } else if (Outcome outcome = round_.close(); outcome != Outcome::kOpen) {
      return outcome == Outcome::kFull;
    } else {
      usleep(20);  // a rank has to find out about an earlier round first
    }
  }
}

}  // namespace hvd
