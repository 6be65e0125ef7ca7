// SPDX-License-Identifier: Apache-2.0
// What an engine tells those who watch it. Any thread, at any time; nothing here waits for the driving thread.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "engine/engine.h"
#include "util/clock.h"
#include "util/json.h"
#include "util/log.h"
#include "watch/flight_file.h"

namespace hvd {
namespace {

constexpr size_t kShown = 20;  // collectives, where people read them

}  // namespace

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
  if (text) timeline_.mark(text);
  else steps_.mark();
}

std::string Engine::where() {
  std::string text(24 << 10, 0);
  int32_t length = 0;
  if (hvd_where_fn ask = where_.load()) length = ask(text.data(), static_cast<int32_t>(text.size()));
  text.resize(static_cast<size_t>(std::max(length, 0)));
  return text;
}

bool Engine::write_down(const std::string& why, bool with_stacks) {
  const std::string& path = settings_.flight_recorder;
  if (path.empty()) return false;
  auto number = [](int64_t n) { return std::to_string(n); };
  std::string line = "{\"rank\": " + number(topology.rank) + ", \"size\": " + number(topology.size) +
                     ", \"host\": " + json_quoted(topology.host_names[static_cast<size_t>(topology.host())]) +
                     ", \"pid\": " + number(getpid()) + ", \"generation\": " + number(topology.generation) +
                     ", \"time_us\": " + number(static_cast<int64_t>(epoch_s() * 1e6)) +
                     ", \"why\": " + json_quoted(why) + ", \"now\": " + now() +
                     ", \"stacks\": " + json_quoted(with_stacks ? where() : "") + ", \"recent\": " + recent() + "}";
  for (char& c : line)
    if (c == '\n') c = ' ';
  if (append_line(path, line)) return true;
  HVD_LOG(Info, "[" << topology.rank << "]: cannot write to " << path << ": " << std::strerror(errno));
  return false;
}

std::string Engine::after_failure(const std::string& why) {
  std::lock_guard<std::mutex> lock(failure_mutex_);
  if (!failure_kept_) failure_kept_ = write_down(why, false);
  return *failure_kept_ ? " What the ranks did last is in " + settings_.flight_recorder + "." : "";
}

void Engine::show() {
  std::string text = "---- " + topology.describe() + ", process " + std::to_string(getpid()) + "\nnow: " + now() +
                     "\nlast collectives:\n" + recorder_.json(kShown) + "\nstacks: " + where() + "\n----\n";
  for (size_t done = 0; done < text.size();) {
    ssize_t n = write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

}  // namespace hvd
