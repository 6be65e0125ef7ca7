// SPDX-License-Identifier: Apache-2.0
#include "engine/executor.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/driver.h"
#include "engine/requests.h"
#include "util/clock.h"

namespace hvd {

Executor::Executor(const Topology& topology, Table& table, Announcer& announcer, Paths& paths, Segment& segment,
                   Timeline& timeline, Steps& steps, const Nvtx& nvtx, Metrics& metrics, Recorder& recorder,
                   int64_t capacity, Callbacks callbacks)
    : topology_(topology),
      table_(table),
      announcer_(announcer),
      paths_(paths),
      segment_(segment),
      timeline_(timeline),
      steps_(steps),
      nvtx_(nvtx),
      metrics_(metrics),
      recorder_(recorder),
      capacity_(capacity),
      callbacks_(std::move(callbacks)) {}

void Executor::execute(const Batch& batch) {
  auto layout = table_.set(batch.process_set);
  if (!layout || !layout->included()) return;
  std::unique_ptr<Flight> flight = take_idle();
  flight->seq = batch.seq;
  flight->kind = batch.kind;
  flight->process_set = batch.process_set;
  flight->last_rank = batch.last_rank;
  flight->layout = std::move(layout);
  announcer_.match(batch, flight.get());
  if (!batch.error.empty()) {
    ++metrics_.errors;
    table_.complete(flight->tensors, {batch.error_code, batch.error});
    return recycle(std::move(flight));
  }
  flight->device = flight->agreed.front()->description.device;
  DataPath* path = paths_.choose(flight->device, *flight->layout);
  if (!path) throw JobAborted("no data path for a batch of process set " + std::to_string(batch.process_set));
  launch(std::move(flight), *path);
}

void Executor::launch(std::unique_ptr<Flight> owned, DataPath& path) {
  Flight& flight = *owned;
  flight.since = now_s();
  double ready = 0;
  for (size_t i = 0; i < flight.tensors.size(); ++i)
    if (const auto* entry = static_cast<const Entry*>(flight.tensors[i])) {
      recorder_.started(entry->record, flight.since, flight.last_rank);
      steps_.begins(flight.agreed[i]->description, static_cast<int64_t>(entry->bytes), flight.since);
      ready = std::max(ready, entry->announced);
    }
  metrics_.batch_starts(flight.since, ready, flight.last_rank);
  flight.traced = timeline_.active();
  flight.phases = flight.traced ? &flight.phase_log : nullptr;
  if (flight.traced) trace_begin(flight);
  if (nvtx_.active()) flight.range = nvtx_.start(flight.agreed.front()->description, flight.agreed.size());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    note(flight, false);
    in_flight_.push_back(std::move(owned));
  }
  try {
    path.start(flight, *this);
  } catch (...) {
    if (std::unique_ptr<Flight> failed = land(flight)) {
      table_.disembark(failed->tensors);
      recycle(std::move(failed));
    }
    throw;
  }
}

void Executor::ended(PlannedBatch& batch, const Status& status) {
  auto& flight = static_cast<Flight&>(batch);
  int64_t bytes = 0;
  for (const Tensor* tensor : flight.tensors)
    if (tensor) bytes += static_cast<int64_t>(tensor->bytes);
  double now = now_s();
  metrics_.batch_ended({flight.agreed.front()->description.kind_text(), static_cast<int64_t>(flight.tensors.size()),
                        bytes, capacity_, flight.since},
                       now);
  steps_.moved(now);
  if (flight.traced) trace_end(flight);
  if (!status.ok()) ++metrics_.errors;
  std::unique_ptr<Flight> landed = land(flight);  // first: who hears of the end may ask what is under way
  // Once the job is over its own text says more than what became of one batch.
  table_.complete(flight.tensors, !status.ok() && table_.over() ? table_.ended() : status);
  if (!Driver::drives_here()) callbacks_.ended_elsewhere();
  if (landed) recycle(std::move(landed));  // last: with it, whoever drains may take the engine apart
}

double Executor::ended_quickly(const Description& tensor, size_t bytes, double since) {
  double now = now_s();
  auto payload = static_cast<int64_t>(bytes);
  ++metrics_.submitted;
  steps_.begins(tensor, payload, since);
  steps_.moved(now);
  metrics_.batch_ended({tensor.kind_text(), 1, payload, capacity_, since}, now);
  metrics_.latency.add(static_cast<int64_t>((now - since) * 1e6));
  uint64_t record = recorder_.queued(
      {tensor.name, tensor.kind_text(), tensor.dtype, tensor.shape, payload, tensor.process_set}, since);
  recorder_.started(record, since, -1);
  recorder_.ended(record, now, true);
  note(tensor, false, true);
  return now;
}

bool Executor::prepare_quickly(const hvd_request& request, const std::shared_ptr<const Variant>& agreed,
                               DeviceCall* call) {
  PlannedBatch& batch = call->batch;
  batch.kind = request.kind;
  batch.process_set = request.process_set;
  batch.device = agreed->description.device;
  batch.layout = table_.set(request.process_set);
  batch.agreed = {agreed};
  batch.tensors = {&call->tensor};
  if (!batch.layout || !request.output) return false;
  call->path = paths_.choose(batch.device, *batch.layout);
  if (!call->path || !call->path->needs_no_plan(batch)) return false;
  try {
    fill_entry(request, topology_, batch.layout.get(), paths_, &call->tensor);
    call->tensor.late = call->tensor.in_stream = true;
    call->path->prepare(request, call->tensor, nullptr);
  } catch (const Refused&) {
    return false;
  }
  return true;
}

bool Executor::start_quickly(DeviceCall& call) {
  try {
    call.path->start(call.batch, call);
    const Entry& tensor = call.tensor;
    if (tensor.result && !tensor.in_stream) tensor.result->precede(tensor.stream);
  } catch (const std::exception& e) {
    call.broken_by = e.what();
  }
  if (!call.broken_by.empty()) callbacks_.broken(call.broken_by);
  return call.broken_by.empty() && call.status.ok() && !segment_.aborted();
}

void Executor::waits_quickly(const Description* tensor, double since) {
  std::lock_guard<std::mutex> lock(mutex_);
  quick_ = tensor;
  quick_since_ = since;
}

std::unique_ptr<Executor::Flight> Executor::take_idle() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (idle_.empty()) return std::make_unique<Flight>();
  std::unique_ptr<Flight> flight = std::move(idle_.back());
  idle_.pop_back();
  return flight;
}

std::unique_ptr<Executor::Flight> Executor::land(PlannedBatch& batch) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = std::find_if(in_flight_.begin(), in_flight_.end(), [&](const auto& f) { return f.get() == &batch; });
  if (it == in_flight_.end()) return nullptr;
  std::unique_ptr<Flight> flight = std::move(*it);
  in_flight_.erase(it);
  note(*flight, true);
  flight->landing = true;
  ++landing_;
  return flight;
}

void Executor::recycle(std::unique_ptr<Flight> flight) {
  if (flight->range) nvtx_.end(*flight->range);
  flight->range.reset();
  flight->tensors.clear();
  flight->agreed.clear();
  flight->layout.reset();
  std::lock_guard<std::mutex> lock(mutex_);
  landing_ -= std::exchange(flight->landing, false);
  idle_.push_back(std::move(flight));
  if (in_flight_.empty() && landing_ == 0) landed_.notify_all();
}

// For the obituary, should this process die now.
void Executor::note(const Flight& flight, bool over) {
  note(flight.agreed.front()->description, flight.agreed.size() > 1, over);
}

void Executor::note(const Description& first, bool others, bool over) {
  segment_.note_last(topology_.local_rank(),
                     {over ? "after " : "in ", first.kind_text(), " of '", std::string_view(first.name).substr(0, 120),
                      others ? "' and others" : "'"});
}

void Executor::trace_begin(Flight& flight) {
  flight.phase_log.clear();
  for (size_t i = 0; i < flight.agreed.size(); ++i) {
    Timeline::Life life;
    if (const auto* entry = static_cast<const Entry*>(flight.tensors[i]))
      life = {entry->since, entry->announced, 0, static_cast<int64_t>(entry->bytes), 0, -1};
    life.started = flight.since;
    life.seq = flight.seq;
    life.last_rank = flight.last_rank;
    timeline_.begin(described(flight.agreed[i]), life);
  }
}

// What the time of a batch went into stands with its first tensor.
void Executor::trace_end(const Flight& flight) {
  for (const PhaseSpan& span : flight.phase_log.told(flight.since))
    timeline_.span(described(flight.agreed.front()), kPhaseNames[static_cast<size_t>(span.phase)], span.from, span.to);
  for (size_t i = 0; i < flight.agreed.size(); ++i)
    timeline_.end(described(flight.agreed[i]),
                  flight.tensors[i] ? flight.tensors[i]->output_shape : flight.agreed[i]->description.shape);
}

bool Executor::drain(double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  return landed_.wait_for(lock, std::chrono::duration<double>(seconds),
                          [&] { return in_flight_.empty() && landing_ == 0; });
}

std::optional<Executor::Oldest> Executor::oldest() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (in_flight_.empty() && quick_) return Oldest{quick_since_, quick_->name, quick_->kind_text()};
  if (in_flight_.empty()) return std::nullopt;
  const Flight& first = *in_flight_.front();
  const Description& what = first.agreed.front()->description;
  return Oldest{first.since, what.name, what.kind_text()};
}

}  // namespace hvd
