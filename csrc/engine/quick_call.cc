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

// Whether the request is what all ranks agreed on under its name. That it makes sense was checked then.
bool is_same(const hvd_request& request, const Description& d) {
  if (request.kind != d.kind || d.group || d.device >= 0) return false;
  if (request.kind == HVD_BARRIER) return true;
  return request.dtype == d.dtype && request.reduce_op == d.reduce_op && request.prescale == d.prescale &&
         request.postscale == d.postscale && request.ndim == static_cast<int32_t>(d.shape.size()) &&
         std::equal(d.shape.begin(), d.shape.end(), request.shape);
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
  bool full = wait_until_full();
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
    if ((now - start) * 1e6 >= options_.spin_us) {
      if (Outcome outcome = round_.close(); outcome != Outcome::kOpen) return outcome == Outcome::kFull;
      usleep(20);  // a rank has to find out about an earlier round first
    }
    if (yields) sched_yield();
  }
}

}  // namespace hvd
