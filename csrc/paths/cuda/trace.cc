// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/trace.h"

#include <algorithm>
#include <utility>

#include "util/clock.h"

namespace hvd::cuda {
namespace {

constexpr size_t kMostPending = 4096;  // batches; a device that stands still is not followed for ever
constexpr double kRenewAfter = 1.0;    // a difference of seconds has steps of 0.1 us
constexpr int kTries = 3;
constexpr double kPatience = 100e-6;
constexpr double kLastPatience = 500e-3;  // better roughly than never

}  // namespace

void Marks::input(EventPtr ready) {
  if (ready && ready->timed() && (inputs_.empty() || inputs_.back() != ready)) inputs_.push_back(std::move(ready));
}

void Marks::begin(Stream stream) { moments_.push_back(device_->record(stream, true)); }

void Marks::passed(const char* part, Stream stream) {
  moments_.push_back(device_->record(stream, true));
  work_.parts.push_back({part, 0});
}

Marks Trace::of(const PlannedBatch& batch, size_t bytes, const char* way) const {
  const Description& first = batch.agreed.front()->description;
  DeviceWork work;
  work.device = device_->number;
  work.tensor = first.name;
  work.tensors = batch.tensors.size();
  work.kind = first.kind_text();
  work.way = way;
  work.seq = batch.seq;
  work.bytes = static_cast<int64_t>(bytes);
  return {device_, std::move(work)};
}

void Trace::add(Marks marks) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (pending_.size() < kMostPending) pending_.push_back(std::move(marks));
}

void Trace::take(std::vector<DeviceWork>* out, bool last) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (pending_.empty()) return;
  InContext in(*device_);
  renew_anchor(kPatience);
  if (last && !anchor_.event) renew_anchor(kLastPatience);
  if (anchor_.event) std::erase_if(pending_, [&](Marks& marks) { return told(marks, out); });
  if (last) pending_.clear();
}

// The stream of the anchors has nothing else to do, so one is reached when it is recorded, unless the device makes it
// wait behind work of other streams. One that is seen at once tells the time; without such a one the last stays.
void Trace::renew_anchor(double patience) {
  if (anchor_.event && now_s() - anchor_.at < kRenewAfter) return;
  Stream stream = device_->stream(kClockLane);
  double shortest = patience;
  for (int turn = 0; turn < kTries; ++turn) {
    double before = now_s();
    EventPtr event = device_->record(stream, true);
    double after = before;
    bool reached = false;
    while (!reached && after - before < patience) {
      reached = event->reached();
      after = now_s();
    }
    if (!reached) return;  // the next one would wait behind this
    if (after - before > shortest) continue;
    shortest = after - before;
    anchor_ = {std::move(event), (before + after) / 2};
  }
}

bool Trace::time_of(const Event& event, double* seconds) const {
  // Which of the two came first only the device knows; of a difference it is asked only forwards.
  double difference = 0;
  if (event.since(*anchor_.event, &difference) && difference >= 0) {
    *seconds = anchor_.at + difference;
    return true;
  }
  if (!anchor_.event->since(event, &difference)) return false;
  *seconds = anchor_.at - difference;
  return true;
}

// False: it is still under way.
bool Trace::told(Marks& marks, std::vector<DeviceWork>* out) const {
  if (!marks.moments_.back()->reached()) return false;
  double seconds = 0;
  DeviceWork& work = marks.work_;
  if (!time_of(*marks.moments_[0], &seconds)) return true;  // the device failed
  work.from = seconds;
  for (size_t i = 0; i < work.parts.size(); ++i) {
    if (!time_of(*marks.moments_[i + 1], &seconds)) return true;
    work.parts[i].until = seconds;
  }
  for (const EventPtr& input : marks.inputs_)
    if (time_of(*input, &seconds)) work.ready = std::max(work.ready, seconds);
  work.ready = work.ready > 0 ? std::min(work.ready, work.from) : work.from;
  out->push_back(std::move(work));
  return true;
}

}  // namespace hvd::cuda
