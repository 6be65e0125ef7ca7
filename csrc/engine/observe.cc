// SPDX-License-Identifier: Apache-2.0
// What an engine tells those who watch it. Any thread, at any time; nothing here waits for the driving thread.
#include <cstdio>

#include "engine/engine.h"
#include "util/clock.h"
#include "util/json.h"

namespace hvd {

std::string Engine::metrics(int64_t restarts) {
  // Staging slots of this rank: two to pack into, two for results.
  auto buffers = static_cast<int64_t>(4 * segment_.slot_bytes());
  return metrics_.json({static_cast<int64_t>(table_.depth()), buffers, restarts});
}

std::string Engine::now() {
  std::string state = "idle";
  std::string name;
  const char* kind = "";
  double since = 0;
  std::vector<int> missing;
  if (auto running = executor_.oldest()) {
    state = "working";
    name = running->name;
    kind = running->kind;
    since = running->since;
    if (int rank = paths_.waiting_for(); rank >= 0) missing.push_back(rank);
  } else if (auto oldest = table_.oldest()) {
    state = "waiting";
    name = oldest->name;
    kind = oldest->kind;
    since = oldest->since;
    std::lock_guard<std::mutex> lock(missing_mutex_);
    if (missing_.name == name) missing = missing_.ranks;
  }
  if (state == "waiting" && topology.is_leader() && !missing_wanted_.exchange(true)) bells_.ring_own();
  std::string ranks;
  for (int rank : missing) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  auto us = since > 0 ? static_cast<long long>((now_s() - since) * 1e6) : 0;
  char age[48];
  std::snprintf(age, sizeof age, "%lld.%06lld", us / 1000000, us % 1000000);  // in any locale
  return "{\"state\": \"" + state + "\", \"name\": " + json_quoted(name) + ", \"kind\": \"" + kind +
         "\", \"since_s\": " + age + ", \"missing\": [" + ranks + "], \"queue\": " + std::to_string(table_.depth()) +
         "}";
}

// The driving thread.
void Engine::note_missing() {
  if (!missing_wanted_.load(std::memory_order_relaxed)) return;
  missing_wanted_ = false;
  Missing found;
  double first = 0;
  for (const Waiting& waiting : node_.waiting(now_s())) {
    if (!found.name.empty() && waiting.since >= first) continue;
    first = waiting.since;
    found = {waiting.name, waiting.missing};
  }
  std::lock_guard<std::mutex> lock(missing_mutex_);
  missing_ = std::move(found);
}

void Engine::mark(const char* text) {
  if (!text) metrics_.step(now_s());
}

}  // namespace hvd
