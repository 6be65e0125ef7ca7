// SPDX-License-Identifier: Apache-2.0
// The stall watch: who is everybody waiting for?
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "engine/engine.h"
#include "util/clock.h"
#include "util/log.h"

namespace hvd {
namespace {

constexpr size_t kNamesShown = 6;
// A frozen neighbour does not answer a ping for this long.
constexpr double kPatience = 2.0;

}  // namespace

// On leaders, while somebody waits: leaders report up what only some of their ranks have submitted, the coordinator
// warns.
void Engine::check_stalls() {
  double limit = settings_.stall_check_time_seconds;
  if (settings_.stall_check_disable || limit <= 0 || node_->idle()) return;
  double now = now_s();
  if (now < next_stall_check_) return;
  next_stall_check_ = now + std::clamp(limit / 4, 0.05, 1.0);

  if (!coordinator_) {
    for (const Waiting& w : node_->waiting(now - limit / 2))
      up_->send(encode_partial({w.process_set, w.name, now - w.since, {w.ready.begin(), w.ready.end()}}));
    return;
  }
  std::vector<Waiting> stalled = node_->waiting(now - limit);
  if (stalled.empty()) return;

  double fatal_after = settings_.stall_shutdown_time_seconds;
  bool may_end = fatal_after > 0 && fatal_after >= limit;
  std::map<int, std::set<std::string>> names_by_rank;
  std::set<int> hopeless;
  for (const Waiting& w : stalled)
    for (int rank : w.missing) {
      names_by_rank[rank].insert(w.name);
      if (may_end && now - w.since > fatal_after) hopeless.insert(rank);
    }
  if (hopeless.empty() && now - last_stall_warning_ < limit) return;
  last_stall_warning_ = now;
  std::ostringstream text;
  text
      << "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting "
         "for remainder of ranks for more than "
      << limit
      << " seconds. This may indicate that different ranks are trying to submit different tensors or that only subset "
         "of ranks is submitting tensors, which will cause deadlock. \nMissing ranks:";
  for (auto& [rank, names] : names_by_rank) {
    text << "\n" << rank << (hopeless.count(rank) ? "!" : "") << ": [";
    size_t shown = 0;
    for (const std::string& name : names) {
      if (shown == kNamesShown) {
        text << " ...";
        break;
      }
      text << (shown++ ? ", " : "") << name;
    }
    text << "] (" << topology.host_names[topology.host_of_rank[rank]] << ")";
  }
  if (hopeless.empty()) {
    HVD_LOG(Warning, text.str());
    int asked = 0;
    for (auto& [rank, names] : names_by_rank)
      if (asked++ < 8) liveness_->ask_where(rank);
    return;
  }
  text << "\nOne or more rank (marked by \"!\") is stalled for longer than " << fatal_after
       << " seconds. Will shutdown.";
  HVD_LOG(Error, text.str());
  std::string who;
  for (int rank : hopeless) who += (who.empty() ? "" : ", ") + topology.describe(rank);
  throw JobAborted("Horovod was shut down because of a stall: " + who +
                   " did not submit what the other ranks wait for (" + stalled.front().name +
                   ") for more than HOROVOD_STALL_SHUTDOWN_TIME_SECONDS");
}

// On every rank, from the watch thread: what the coordinator cannot see, because this rank is inside a collective whose
// peer is frozen, or because the coordinator itself is.
void Engine::watch_tick() {
  if (over_ || !started_ || segment_->aborted()) return;
  double now = now_s();
  if (goodbye_at_ > 0 && now - goodbye_at_ > 2.0 && !shutdown_seen_) {
    segment_->abort(kShutdownText);
    ring_own_bell();
    return;
  }
  double limit = settings_.stall_check_time_seconds;
  if (settings_.stall_check_disable || limit <= 0) return;
  double executing = executing_since_;
  double oldest = now;
  std::string name;
  if (executing > 0) {
    oldest = executing;
    std::lock_guard<std::mutex> lock(park_mutex_);
    name = executing_name_;
  } else if (coordinator_) {
    return;  // check_stalls() sees all there is
  } else {
    std::lock_guard<std::mutex> lock(table_mutex_);
    for (auto& [key, entry] : pending_)
      if (entry->since < oldest) {
        oldest = entry->since;
        name = entry->description.name;
      }
  }
  double age = now - oldest;
  if (age < limit) {
    warned_locally_ = 0;
    return;
  }
  int suspect = -1;
  if (executing > 0) {
    int local = lane_->waiting_for();
    if (local >= 0) suspect = topology.local_ranks()[local];
  }
  // A neighbour in the tree that does not even answer a ping is frozen, whatever it was doing.
  int silent = liveness_->silent_neighbour(kPatience);
  if (silent >= 0) suspect = silent;
  if (suspect < 0) return;  // the coordinator is well and reports who is missing

  double fatal_after = settings_.stall_shutdown_time_seconds;
  bool ends = fatal_after > 0 && fatal_after >= limit && age > fatal_after;
  std::ostringstream text;
  text << topology.describe(topology.rank) << " has been waiting for " << topology.describe(suspect) << " in '" << name
       << "' for " << static_cast<int>(age) << " seconds"
       << (silent >= 0 ? "; that process does not answer: it is stopped or its host hangs." : ".");
  if (ends) {
    HVD_LOG(Error, "[" << topology.rank << "]: " << text.str() << " Will shutdown.");
    abort("Horovod was shut down because of a stall: " + text.str());
  } else if (now - warned_locally_ > limit) {
    warned_locally_ = now;
    HVD_LOG(Warning, "[" << topology.rank << "]: " << text.str() << "\nMissing ranks:\n"
                         << suspect << ": [" << name << "]");
  }
}

}  // namespace hvd
