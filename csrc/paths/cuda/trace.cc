// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/trace.h"

#include <algorithm>
#include <utility>

#include "util/clock.h"

namespace hvd::cuda {
namespace {

constexpr size_t kMostPending = 4096;  // batches; a device that stands still is not followed for ever
// 2^24 steps of 0.1 us. The thread that takes renews in time; who records only where nobody took for long.
constexpr double kRenewAfter = 1.0;
constexpr double kStaleAfter = 5.0;
constexpr int kTries = 3;
constexpr double kPatience = 100e-6;

}  // namespace

void Marks::input(EventPtr ready) {
  if (ready && ready->timed() && (inputs_.empty() || inputs_.back() != ready)) inputs_.push_back(std::move(ready));
}

void Marks::begin(Stream stream) { moments_.push_back(anchor_->event->device().record(stream, true)); }

void Marks::passed(const char* part, Stream stream) {
  moments_.push_back(anchor_->event->device().record(stream, true));
  work_.parts.push_back({part, 0});
}

Marks Trace::of(const PlannedBatch& batch, size_t bytes, int lane, const char* way) {
  std::lock_guard<std::mutex> lock(mutex_);
  renew_anchor(kStaleAfter);
  const Description& first = batch.agreed.front()->description;
  DeviceWork work;
  work.device = device_->number;
  work.lane = lane;
  work.tensor = first.name;
  work.tensors = batch.tensors.size();
  work.kind = first.kind_text();
  work.way = way;
  work.seq = batch.seq;
  work.bytes = static_cast<int64_t>(bytes);
  return {anchor_, std::move(work)};
}

void Trace::add(Marks marks) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (pending_.size() < kMostPending) pending_.push_back(std::move(marks));
}

void Trace::take(std::vector<DeviceWork>* out) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (pending_.empty()) return;
  InContext in(*device_);
  std::erase_if(pending_, [&](Marks& marks) { return told(marks, out); });
  renew_anchor(kRenewAfter);
}

// The stream of the anchors has nothing else to do, so one is reached about when it is recorded: of a few, the one that
// was seen soonest.
void Trace::renew_anchor(double older_than) {
  if (anchor_ && now_s() - anchor_->at < older_than) return;
  Stream stream = device_->stream(kClockLane);
  double shortest = 0;
  std::shared_ptr<const Anchor> best;
  for (int turn = 0; turn < kTries; ++turn) {
    double before = now_s();
    EventPtr event = device_->record(stream, true);
    double after = now_s();
    while (!event->reached() && after - before < kPatience) after = now_s();
    if (best && after - before >= shortest) continue;
    shortest = after - before;
    best = std::make_shared<const Anchor>(Anchor{std::move(event), (before + after) / 2});
  }
  anchor_ = std::move(best);
}

// False: it is still under way.
bool Trace::told(Marks& marks, std::vector<DeviceWork>* out) const {
  const Anchor& anchor = *marks.anchor_;
  if (!marks.moments_.back()->reached() || !anchor.event->reached()) return false;
  double seconds = 0;
  auto time = [&](const EventPtr& moment) {
    bool known = moment->since(*anchor.event, &seconds);
    seconds += anchor.at;
    return known;
  };
  DeviceWork& work = marks.work_;
  if (!time(marks.moments_[0])) return true;  // the device failed
  work.from = seconds;
  for (size_t i = 0; i < work.parts.size(); ++i) {
    if (!time(marks.moments_[i + 1])) return true;
    work.parts[i].until = seconds;
  }
  for (const EventPtr& input : marks.inputs_)
    if (time(input)) work.ready = std::max(work.ready, seconds);
  work.ready = work.ready > 0 ? std::min(work.ready, work.from) : work.from;
  out->push_back(std::move(work));
  return true;
}

}  // namespace hvd::cuda
