// SPDX-License-Identifier: Apache-2.0
#include "watch/metrics.h"

#include <algorithm>
#include <cstring>

namespace hvd {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

void add(Counter& counter, int64_t n) { counter.fetch_add(n, kRelaxed); }

int64_t micros(double seconds) { return static_cast<int64_t>(seconds * 1e6); }

std::string field(const char* name, int64_t value) { return std::string("\"") + name + "\": " + std::to_string(value); }

}  // namespace

void Histogram::add(int64_t us) {
  size_t i = 0;
  while (i < kBounds.size() && us > kBounds[i]) ++i;
  counts_[i].fetch_add(1, kRelaxed);
  sum_.fetch_add(us, kRelaxed);
}

std::string Histogram::json() const {
  std::string bounds;
  std::string counts;
  for (int64_t bound : kBounds) bounds += (bounds.empty() ? "" : ", ") + std::to_string(bound);
  for (const Counter& count : counts_) counts += (counts.empty() ? "" : ", ") + std::to_string(count.load(kRelaxed));
  return "{\"bounds\": [" + bounds + "], \"counts\": [" + counts + "], " + field("sum", sum_.load(kRelaxed)) + "}";
}

void Metrics::batch_starts(double now, double ready, int last_rank) {
  double from = std::max(ready, waiting_from_.load(kRelaxed));
  waiting_from_.store(now, kRelaxed);
  if (ready <= 0 || from >= now || last_rank < 0 || last_rank == rank_) return;
  int64_t us = micros(now - from);
  add(wait_us, us);
  if (static_cast<size_t>(last_rank) < waited_for.size()) add(waited_for[static_cast<size_t>(last_rank)], us);
}

void Metrics::batch_ended(const Batch& batch, double now) {
  int64_t us = micros(now - batch.started);
  add(batches, 1);
  add(tensors, batch.tensors);
  add(bytes, batch.bytes);
  add(execute_us, us);
  if (batch.tensors > 1) {
    add(fused_tensors, batch.tensors);
    add(fusion_bytes, batch.bytes);
    add(fusion_capacity_bytes, batch.capacity);
  }
  auto it = std::find_if(kinds_.begin(), kinds_.end() - 1,
                         [&](const Kind& kind) { return std::strcmp(kind.name, batch.kind) == 0; });
  add(it->count, batch.tensors);
  add(it->bytes, batch.bytes);
  add(it->us, us);
  waiting_from_.store(now, kRelaxed);
}

void Metrics::step(double now) {
  double before = last_step_.exchange(now);
  add(steps, 1);
  if (before <= 0) return;
  add(step_us, micros(now - before));
  last_step_us.store(micros(now - before), kRelaxed);
}

std::string Metrics::json(const Gauges& gauges) const {
  std::string out = "{";
  auto put = [&](const std::string& text) { out += (out.size() > 1 ? ", " : "") + text; };
  auto count = [&](const char* name, const Counter& value) { put(field(name, value.load(kRelaxed))); };
  count("submitted", submitted);
  count("batches", batches);
  count("tensors", tensors);
  count("fused_tensors", fused_tensors);
  count("bytes", bytes);
  count("execute_us", execute_us);
  count("cached_announcements", cached_announcements);
  count("full_announcements", full_announcements);
  count("plans", plans);
  count("errors", errors);
  count("fusion_bytes", fusion_bytes);
  count("fusion_capacity_bytes", fusion_capacity_bytes);
  count("wait_us", wait_us);
  std::string waits;
  for (size_t rank = 0; rank < waited_for.size(); ++rank)
    if (int64_t us = waited_for[rank].load(kRelaxed))
      waits += (waits.empty() ? "" : ", ") + field(std::to_string(rank).c_str(), us);
  put("\"waited_for_us\": {" + waits + "}");
  std::string kinds;
  for (const Kind& kind : kinds_)
    if (int64_t n = kind.count.load(kRelaxed))
      kinds += (kinds.empty() ? "\"" : ", \"") + std::string(kind.name) + "\": {" + field("count", n) + ", " +
               field("bytes", kind.bytes.load(kRelaxed)) + ", " + field("us", kind.us.load(kRelaxed)) + "}";
  put("\"by_kind\": {" + kinds + "}");
  put("\"latency_us\": " + latency.json());
  count("steps", steps);
  count("step_us", step_us);
  count("last_step_us", last_step_us);
  put(field("queue_depth", gauges.queue_depth));
  put(field("buffer_bytes", gauges.buffer_bytes));
  put(field("restarts", gauges.restarts));
  return out + "}";
}

}  // namespace hvd
