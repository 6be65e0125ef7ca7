// SPDX-License-Identifier: Apache-2.0
#include "engine/stall.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "util/clock.h"
#include "util/log.h"

namespace hvd {
namespace {

constexpr size_t kNamesShown = 6;
constexpr int kRanksAsked = 8;
// A frozen neighbour does not answer a ping for this long.
constexpr double kPatience = 2.0;

}  // namespace

StallWatch::StallWatch(const Topology& topology, const Settings& settings, ControlNode& node, Executor& executor,
                       Table& table, const Paths& paths, Liveness& liveness,
                       std::function<void(const std::string&)> abort)
    : topology_(topology),
      settings_(settings),
      node_(node),
      executor_(executor),
      table_(table),
      paths_(paths),
      liveness_(liveness),
      abort_(std::move(abort)) {
  if (settings_.stall_shutdown_time_seconds > 0 &&
      settings_.stall_shutdown_time_seconds < settings_.stall_check_time_seconds)
    HVD_LOG(Warning,
            "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is less than HOROVOD_STALL_CHECK_TIME_SECONDS, will not shutdown.");
}

// While somebody waits: leaders report up what only some of their ranks have submitted, the coordinator warns.
void StallWatch::check() {
  if (!enabled() || !node_.somebody_waits()) return;
  double now = now_s();
  if (now < next_check_) return;
  double limit = this->limit();
  next_check_ = now + std::clamp(limit / 4, 0.05, 1.0);
  if (topology_.is_coordinator()) {
    std::vector<Waiting> stalled = node_.waiting(now - limit);
    if (!stalled.empty()) report(stalled, now);
  } else {
    for (const Waiting& w : node_.waiting(now - limit / 2)) node_.report_partial(w, now);
  }
}

// A rank that waits for something else than the others do has parted from them.
void StallWatch::find_parted(const std::vector<Waiting>& stalled) {
  auto has = [](const std::vector<int>& ranks, int rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  };
  std::map<int, std::string> parted;
  for (const Waiting& most : stalled)
    for (const Waiting& other : stalled) {
      if (most.process_set != other.process_set || most.ready.size() < other.ready.size()) continue;
      for (int rank : other.ready)
        if (has(most.missing, rank) && !has(other.ready, most.ready.empty() ? -1 : most.ready.front()))
          parted.try_emplace(rank, "submitted '" + other.name + "' where " +
                                       (most.ready.size() > 1 ? "the others" : topology_.describe(most.ready.front())) +
                                       " submitted '" + most.name + "'");
    }
  std::lock_guard<std::mutex> lock(parted_mutex_);
  parted_ = std::move(parted);
}

std::string StallWatch::instead(int rank) {
  std::lock_guard<std::mutex> lock(parted_mutex_);
  auto it = parted_.find(rank);
  return it == parted_.end() ? "" : it->second;
}

void StallWatch::report(const std::vector<Waiting>& stalled, double now) {
  double limit = this->limit();
  double fatal_after = settings_.stall_shutdown_time_seconds;
  bool may_end = fatal_after > 0 && fatal_after >= limit;
  std::map<int, std::set<std::string>> names_by_rank;
  std::set<int> hopeless;
  for (const Waiting& w : stalled)
    for (int rank : w.missing) {
      names_by_rank[rank].insert(w.name);
      if (may_end && now - w.since > fatal_after) hopeless.insert(rank);
    }
  if (hopeless.empty() && now - last_warning_ < limit) return;
  if (last_warning_ == 0 || !hopeless.empty())
    liveness_.ask_to_write_down("a stall: '" + stalled.front().name + "' waits for " +
                                topology_.describe(stalled.front().missing.empty() ? 0 : stalled.front().missing[0]));
  last_warning_ = now;
  find_parted(stalled);
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
    text << "] (" << topology_.host_names[topology_.host_of_rank[rank]] << ")";
  }
  if (hopeless.empty()) {
    HVD_LOG(Warning, text.str());
    int asked = 0;
    for (auto& [rank, names] : names_by_rank)
      if (asked++ < kRanksAsked) liveness_.ask_where(rank);
    return;
  }
  text << "\nOne or more rank (marked by \"!\") is stalled for longer than " << fatal_after
       << " seconds. Will shutdown.";
  HVD_LOG(Error, text.str());
  std::string who;
  for (int rank : hopeless) {
    std::string what = instead(rank);
    who += (who.empty() ? "" : ", ") + topology_.describe(rank) + (what.empty() ? "" : " (which " + what + ")");
  }
  throw JobAborted("Horovod was shut down because of a stall: " + who +
                   " did not submit what the other ranks wait for (" + stalled.front().name +
                   ") for more than HOROVOD_STALL_SHUTDOWN_TIME_SECONDS");
}

void StallWatch::tick() {
  if (!enabled()) return;
  double now = now_s();
  double since = now;
  std::string name;
  auto running = executor_.oldest();
  if (running) {
    since = running->since;
    name = running->name;
  } else if (topology_.is_coordinator()) {
    return;  // check() sees all there is
  } else if (auto oldest = table_.oldest()) {
    since = oldest->since;
    name = oldest->name;
  }
  double limit = this->limit();
  double age = now - since;
  if (age < limit) {
    warned_locally_ = 0;
    return;
  }
  int suspect = running ? paths_.waiting_for() : -1;
  // A neighbour in the tree that does not even answer a ping is frozen, whatever it was doing.
  int silent = liveness_.silent_neighbour(kPatience);
  if (silent >= 0) suspect = silent;
  if (suspect < 0) return;  // the coordinator is well and reports who is missing

  double fatal_after = settings_.stall_shutdown_time_seconds;
  bool ends = fatal_after > 0 && fatal_after >= limit && age > fatal_after;
  std::ostringstream text;
  text << topology_.describe() << " has been waiting for " << topology_.describe(suspect) << " in '" << name << "' for "
       << static_cast<int>(age) << " seconds"
       << (silent >= 0 ? "; that process does not answer: it is stopped or its host hangs." : ".");
  if (ends) {
    HVD_LOG(Error, "[" << topology_.rank << "]: " << text.str() << " Will shutdown.");
    abort_("Horovod was shut down because of a stall: " + text.str());
  } else if (now - warned_locally_ > limit) {
    warned_locally_ = now;
    HVD_LOG(Warning, "[" << topology_.rank << "]: " << text.str() << "\nMissing ranks:\n"
                         << suspect << ": [" << name << "]");
  }
}

}  // namespace hvd
