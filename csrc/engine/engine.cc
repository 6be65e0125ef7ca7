// SPDX-License-Identifier: Apache-2.0
// Threads, waiting and the life cycle.
#include "engine/engine.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstring>

#include "engine/affinity.h"
#include "util/clock.h"
#include "util/cores.h"
#include "util/log.h"
#include "util/threads.h"

namespace hvd {
namespace {

// After a caller drove the engine itself it will most likely come back at once: the background thread leaves it alone
// for this long.
constexpr double kCallerGrace = 1e-3;
// After looking this often, a millisecond apart, whether the caller still drives, the background thread waits to be
// told.
constexpr int kShortParks = 10;

std::vector<int> copy_doorbells(const hvd_world& world, int local_size) {
  if (local_size == 1 || !world.doorbell_fds) return {eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  return {world.doorbell_fds, world.doorbell_fds + local_size};
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

Engine::Engine(const hvd_world& world, const std::vector<hvd_link>& links, const Settings& settings)
    : topology(world),
      settings_(settings),
      doorbells_(copy_doorbells(world, topology.local_size())),
      segment_(std::make_unique<Segment>(topology.local_size() == 1 ? -1 : world.shm_fd, topology.local_size(),
                                         static_cast<size_t>(settings.shm_slot_bytes))),
      bells_(*segment_, doorbells_.data()) {
  configure_log(settings_.log_level, settings_.log_hide_time);
  // Spinning beats sleeping while every rank of the host has a core to itself; otherwise it offers the core to the
  // others all the time, which is still cheaper than being woken.
  crowded_ = topology.local_size() > usable_cores();
  spin_us_ = settings_.spin_us >= 0 ? settings_.spin_us : topology.local_size() == 1 ? 0 : crowded_ ? 50 : 100;
  lane_ = std::make_unique<Lane>(*segment_, topology.local_rank(), spin_us_, !crowded_);

  if (topology.is_leader()) {
    std::vector<std::vector<int>> source_ranks{{topology.rank}};
    sources_.emplace_back(nullptr);
    for (int r : topology.local_ranks()) {
      if (r == topology.rank) continue;
      int local = topology.local_rank_of[r];
      source_ranks.push_back({r});
      sources_.push_back(std::make_unique<MailboxChannel>(segment_->down(local), segment_->up(local), bells_, local));
    }
    for (int child : tree_children(topology.host(), topology.hosts())) {
      std::vector<int> below;
      for (int h : tree_subtree(child, topology.hosts()))
        below.insert(below.end(), topology.ranks_of_host[h].begin(), topology.ranks_of_host[h].end());
      source_ranks.push_back(below);
      int leader = topology.leader_of(child);
      for (const hvd_link& link : links)
        if (link.kind == HVD_LINK_CONTROL && link.peer == leader)
          sources_.push_back(std::make_unique<SocketChannel>(link.fd, topology.describe(leader)));
    }
    node_ = std::make_unique<Aggregator>(source_ranks);
    if (sources_.size() != source_ranks.size()) throw Refused(HVD_INVALID, "a control link to another host is missing");
    if (topology.is_coordinator()) {
      coordinator_ = std::make_unique<Coordinator>(topology, settings_, *node_);
    } else {
      int leader = topology.leader_of(tree_parent(topology.host()));
      for (const hvd_link& link : links)
        if (link.kind == HVD_LINK_CONTROL && link.peer == leader)
          up_ = std::make_unique<SocketChannel>(link.fd, topology.describe(leader));
      if (!up_) throw Refused(HVD_INVALID, "the control link to " + topology.describe(leader) + " is missing");
    }
  } else {
    int me = topology.local_rank();
    up_ = std::make_unique<MailboxChannel>(segment_->up(me), segment_->down(me), bells_, 0);
  }

  std::vector<int> everyone(topology.size);
  for (int r = 0; r < topology.size; ++r) everyone[r] = r;
  comms_[0] = std::make_unique<Comm>(topology, *lane_, SetLayout(topology, everyone));
  if (node_) node_->add_set(0, everyone);
  attach_links(links);
  if (topology.is_coordinator() && !topology.homogeneous())
    HVD_LOG(Info, "Hosts run different numbers of ranks; only " << comms_[0]->layout.columns
                                                                << " of each exchange data with other hosts.");
  if (settings_.stall_shutdown_time_seconds > 0 &&
      settings_.stall_shutdown_time_seconds < settings_.stall_check_time_seconds)
    HVD_LOG(Warning,
            "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is less than HOROVOD_STALL_CHECK_TIME_SECONDS, will not shutdown.");
  if (!settings_.timeline.empty() && lower(settings_.timeline) != "dynamic" && topology.is_coordinator())
    timeline_.start(settings_.timeline, settings_.timeline_mark_cycles);

  Liveness::Callbacks callbacks;
  callbacks.aborted = [this](const std::string& text) {
    segment_->abort(text);
    ring_own_bell();
  };
  callbacks.said_goodbye = [this](int) { goodbye_at_ = now_s(); };
  callbacks.last_words = [this](int rank) {
    if (topology.host_of_rank[rank] != topology.host()) return std::string();
    const char* last = segment_->rank(topology.local_rank_of[rank]).last;
    return std::string(last, strnlen(last, sizeof(RankState::last)));
  };
  callbacks.where = [this] {
    char text[512] = "";
    if (hvd_where_fn where = where_.load()) where(text, sizeof text);
    return std::string(text);
  };
  callbacks.found = [this](int rank, const std::string& text) {
    if (topology.is_coordinator() && !text.empty())
      HVD_LOG(Warning, "[" << topology.rank << "]: " << topology.describe(rank) << " is at " << text);
  };
  callbacks.tick = [this] { watch_tick(); };
  std::vector<Liveness::Neighbour> neighbours;
  for (const hvd_link& link : links)
    if (link.kind == HVD_LINK_WATCH) neighbours.push_back({link.peer, link.fd});
  liveness_ = std::make_unique<Liveness>(topology, neighbours, std::move(callbacks));
  started_ = true;
  thread_ = start_thread("hvd-engine", [this] { background(); });
}

Engine::~Engine() {
  stop();
  liveness_.reset();
  for (int fd : doorbells_) close(fd);
}

void Engine::attach_links(const std::vector<hvd_link>& links) {
  bool mpi = lower(settings_.cpu_operations) == "mpi";
  ++user_drivers_;
  std::lock_guard<std::mutex> drive(drive_mutex_);
  --user_drivers_;
  for (auto& [id, comm] : comms_) {
    const SetLayout& layout = comm->layout;
    std::vector<int> out(layout.hops(), -1);
    std::vector<int> in(layout.hops(), -1);
    int found = 0;
    for (const hvd_link& link : links) {
      if (link.process_set != id || link.kind < HVD_LINK_DATA_OUT || link.hop >= layout.hops()) continue;
      (link.kind == HVD_LINK_DATA_OUT ? out : in)[link.hop] = link.fd;
      ++found;
    }
    if (comm->ready() || !layout.included()) continue;
    auto check = [this] { lane_->check(); };
    if (mpi) {
      std::vector<int> column;
      for (const auto& on_host : layout.host_members) column.push_back(layout.members[on_host[layout.my_local]]);
      for (int fd : out)
        if (fd >= 0) close(fd);
      for (int fd : in)
        if (fd >= 0) close(fd);
      comm->attach(make_mpi_transport(id, column, layout.my_host, check));
    } else if (found == 2 * layout.hops()) {
      comm->attach(make_tcp_transport(out, in, check));
    }
  }
}

bool Engine::progress() {
  if (over_) return false;
  try {
    lane_->check();
    bool did = announce_submissions();
    did |= receive();
    if (coordinator_) did |= plan_if_root();
    else if (node_) pass_up();
    if (node_) {
      check_stalls();
      somebody_waits_.store(!node_->idle(), std::memory_order_relaxed);
    }
    bool backlog = up_ && up_->has_backlog();
    for (const auto& source : sources_) backlog |= source && source->has_backlog();
    backlog_.store(backlog, std::memory_order_relaxed);
    return did;
  } catch (const JobAborted& e) {
    handle_abort(e.what());
  } catch (const ParseError& e) {
    handle_abort(std::string("a control message could not be read (") + e.what() +
                 "); do all ranks run the same version of this package?");
  } catch (const std::exception& e) {
    handle_abort(std::string("internal error on ") + topology.describe(topology.rank) + ": " + e.what());
  }
  return true;
}

// A broken connection is a symptom: the obituary that names the cause is usually a moment behind.
void Engine::handle_abort(const std::string& reason) {
  for (int i = 0; i < 50 && !segment_->aborted() && !goodbye_at_; ++i) usleep(10000);
  std::string text = segment_->aborted() ? segment_->abort_text()
                     : goodbye_at_       ? std::string(kShutdownText)
                                         : reason + " (seen by " + topology.describe(topology.rank) + ")";
  liveness_->broadcast_abort(text);
  segment_->abort(text);
  fail_everything({HVD_UNKNOWN, text});
}

void Engine::check() {
  std::lock_guard<std::mutex> lock(table_mutex_);
  if (!ended_.ok()) throw Refused(ended_.code, ended_.text);
}

void Engine::abort(const std::string& reason) {
  liveness_->broadcast_abort(reason);
  segment_->abort(reason);
  ring_own_bell();
}

void Engine::fail_everything(const Status& status) {
  std::vector<Entry*> failed;
  {
    std::lock_guard<std::mutex> lock(table_mutex_);
    if (ended_.ok()) ended_ = status;
    over_ = true;
    queue_.clear();
    for (auto& [key, entry] : pending_) failed.push_back(entry);
  }
  for (Entry* entry : failed) complete(entry, status);
  std::lock_guard<std::mutex> lock(table_mutex_);
  completed_.notify_all();
}

bool Engine::has_outstanding() {
  std::lock_guard<std::mutex> lock(table_mutex_);
  return !pending_.empty();
}

void Engine::background() {
  if (!settings_.thread_affinity.empty())
    pin_this_thread(settings_.thread_affinity, topology.local_rank(), topology.local_size());
  int parks = 0;  // in a row, during one drive of a caller
  double drive_seen = 0;
  while (!stop_thread_) {
    bool caller_drives = user_drivers_ > 0;
    if (!caller_drives && now_s() - last_user_drive_ < kCallerGrace) caller_drives = !has_outstanding();
    if (caller_drives || !drive_mutex_.try_lock()) {
      const double drive_now = last_user_drive_;
      parks = drive_now == drive_seen ? parks + 1 : 0;
      drive_seen = drive_now;
      park(parks > kShortParks);
      continue;
    }
    uint32_t seen = segment_->rank(topology.local_rank()).bell.load(std::memory_order_acquire);
    bool did = progress();
    drive_mutex_.unlock();
    if (!did && !stop_thread_) sleep_on_bell(seen, 1.0, false);
  }
}

// Leaves the engine to the caller who drives it. A caller who drives for long has to say when it stops; one who
// makes many short calls is spared that.
void Engine::park(bool caller_stays) {
  std::unique_lock<std::mutex> lock(park_mutex_);
  parked_ = caller_stays ? kUntilCalled : kBriefly;
  if (user_drivers_ > 0 || !has_outstanding())
    park_.wait_for(lock, std::chrono::milliseconds(caller_stays && user_drivers_ > 0 ? 50 : 1));
  parked_ = kNotParked;
}

void Engine::wake_background() {
  std::lock_guard<std::mutex> lock(park_mutex_);
  park_.notify_one();
}

bool Engine::drive(Submission* until, double deadline) {
  while (!until->done.load(std::memory_order_acquire)) {
    uint32_t seen = segment_->rank(topology.local_rank()).bell.load(std::memory_order_acquire);
    if (progress()) continue;
    if (until->done.load(std::memory_order_acquire)) break;
    double left = deadline - now_s();
    if (left <= 0) return false;
    sleep_on_bell(seen, std::min(left, 1.0), true);
  }
  return true;
}

// A rank that may ring the bell needs this core to do so.
bool Engine::rival_on_core() {
  int me = topology.local_rank();
  segment_->note_core(me);
  if (me != 0) return segment_->on_my_core(0);
  for (int other = 1; other < topology.local_size(); ++other)
    if (segment_->on_my_core(other)) return true;
  return false;
}

void Engine::sleep_on_bell(uint32_t seen, double timeout_s, bool may_spin) {
  RankState& me = segment_->rank(topology.local_rank());
  pollfd fds[3 + kTreeArity];
  nfds_t n = 0;
  fds[n++] = {doorbells_[topology.local_rank()], POLLIN, 0};
  if (up_ && up_->fd() >= 0) fds[n++] = {up_->fd(), POLLIN, 0};
  for (const auto& source : sources_)
    if (source && source->fd() >= 0) fds[n++] = {source->fd(), POLLIN, 0};

  if (may_spin && spin_us_ > 0) {
    bool yields = crowded_ || rival_on_core();
    double start = now_s();
    do {
      for (int i = 0; i < (yields ? 1 : 32); ++i) {
        if (me.bell.load(std::memory_order_acquire) != seen) return;
        cpu_relax();
      }
      if (yields) sched_yield();
      if (n > 1 && ::poll(fds + 1, n - 1, 0) > 0) return;
    } while ((now_s() - start) * 1e6 < spin_us_);
  }
  if (somebody_waits_.load(std::memory_order_relaxed)) timeout_s = std::min(timeout_s, 0.1);
  if (backlog_.load(std::memory_order_relaxed)) timeout_s = 1e-3;
  if (settings_.cycle_time > 0) timeout_s = std::min(timeout_s, settings_.cycle_time * 1e-3);
  me.sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (me.bell.load(std::memory_order_seq_cst) == seen && !segment_->aborted())
    ::poll(fds, n, std::max(1, static_cast<int>(timeout_s * 1000)));
  else if (segment_->aborted() && over_) usleep(1000);
  // The last to wake empties the doorbell: another thread of this rank that sleeps on it must still see it ring.
  if (me.sleepers.fetch_sub(1, std::memory_order_seq_cst) > 1) return;
  uint64_t count;
  [[maybe_unused]] ssize_t got = read(fds[0].fd, &count, sizeof count);
}

std::shared_ptr<Submission> Engine::find(int64_t handle) {
  std::lock_guard<std::mutex> lock(table_mutex_);
  auto it = handles_.find(handle);
  return it == handles_.end() ? nullptr : it->second;
}

int32_t Engine::poll(int64_t handle) {
  auto submission = find(handle);
  if (!submission) return HVD_INVALID;
  return submission->done.load(std::memory_order_acquire) ? 1 : 0;
}

Status Engine::wait(int64_t handle, double timeout_s) {
  auto submission = find(handle);
  if (!submission) return {HVD_INVALID, "unknown handle " + std::to_string(handle)};
  double deadline = timeout_s < 0 ? 1e18 : now_s() + timeout_s;
  while (!submission->done.load(std::memory_order_acquire)) {
    ++user_drivers_;
    if (drive_mutex_.try_lock()) {
      drive(submission.get(), deadline);
      last_user_drive_ = now_s();
      drive_mutex_.unlock();
      --user_drivers_;
      bool others;
      {
        std::lock_guard<std::mutex> lock(table_mutex_);
        others = !pending_.empty();
        if (waiters_) completed_.notify_all();  // somebody else may drive now
      }
      if (others || parked_ == kUntilCalled) wake_background();
    } else {
      --user_drivers_;
      ring_own_bell();  // whoever drives may have looked at the queue before this submission was in it
      std::unique_lock<std::mutex> lock(table_mutex_);
      if (submission->done.load(std::memory_order_acquire)) break;
      ++waiters_;
      double left = std::min(deadline - now_s(), 0.02);
      if (left > 0) completed_.wait_for(lock, std::chrono::duration<double>(left));
      --waiters_;
    }
    if (!submission->done.load(std::memory_order_acquire) && now_s() >= deadline) return {HVD_TIMEOUT, "not done yet"};
  }
  return submission->status;
}

void Engine::release(int64_t handle) {
  std::shared_ptr<Submission> dying;  // freed outside of the lock
  std::lock_guard<std::mutex> lock(table_mutex_);
  auto it = handles_.find(handle);
  if (it == handles_.end()) return;
  if (!it->second->done) {
    it->second->flags |= HVD_AUTO_RELEASE;
    return;
  }
  dying = std::move(it->second);
  handles_.erase(it);
}

int32_t Engine::add_process_set(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= topology.size)
      throw Refused(HVD_INVALID, "Tried to register process set with invalid rank: " + std::to_string(ranks[i]));
    if (i && ranks[i] == ranks[i - 1])
      throw Refused(HVD_INVALID, "Tried to register process set with duplicate rank: " + std::to_string(ranks[i]));
  }
  if (ranks.empty()) throw Refused(HVD_INVALID, "Tried to register an empty process set");
  {
    std::lock_guard<std::mutex> lock(table_mutex_);
    for (auto& [id, comm] : comms_)
      if (comm->layout.members == ranks)
        throw Refused(HVD_INVALID,
                      "Attempted to add a duplicate process set: it is registered with id " + std::to_string(id));
  }
  int64_t handle = submit_internal(kAddProcessSet, "process_set.add", {ranks.begin(), ranks.end()}, -1);
  Status status = wait(handle, -1);
  auto submission = find(handle);
  release(handle);
  if (!status.ok()) throw Refused(status.code, status.text);
  return static_cast<int32_t>(submission->entries[0].value);
}

void Engine::remove_process_set(int32_t id) {
  int64_t handle = submit_internal(kRemoveProcessSet, "process_set.remove", {}, id);
  Status status = wait(handle, -1);
  release(handle);
  if (!status.ok()) throw Refused(status.code, status.text);
}

std::vector<int> Engine::process_set_ranks(int32_t id) {
  std::lock_guard<std::mutex> lock(table_mutex_);
  auto it = comms_.find(id);
  return it == comms_.end() ? std::vector<int>{} : it->second->layout.members;
}

std::vector<int32_t> Engine::process_set_ids() {
  std::lock_guard<std::mutex> lock(table_mutex_);
  std::vector<int32_t> ids;
  for (auto& [id, comm] : comms_) ids.push_back(id);
  return ids;
}

void Engine::start_timeline(const std::string& path, bool mark_cycles) {
  if (topology.is_coordinator() && !timeline_.start(path, mark_cycles))
    throw Refused(HVD_INVALID, "cannot write the timeline to " + path);
}

void Engine::stop_timeline() { timeline_.stop(); }

std::string Engine::metrics() { return metrics_.json(); }

std::vector<int> Engine::descriptors() const {
  std::vector<int> fds = doorbells_;
  if (up_ && up_->fd() >= 0) fds.push_back(up_->fd());
  for (const auto& source : sources_)
    if (source && source->fd() >= 0) fds.push_back(source->fd());
  for (auto& [id, comm] : comms_)
    for (int fd : comm->descriptors()) fds.push_back(fd);
  if (liveness_)
    for (int fd : liveness_->descriptors()) fds.push_back(fd);
  return fds;
}

void Engine::stop() {
  if (!thread_.joinable()) return;
  {
    std::unique_lock<std::mutex> lock(table_mutex_);
    shutdown_requested_ = true;
    lock.unlock();
    ring_own_bell();
    park_.notify_all();
    lock.lock();
    // Everybody is told before this rank's links close. A rank that cannot hear is not waited for.
    auto wait_over = [&](double seconds) {
      double deadline = now_s() + seconds;
      while (!over_ && now_s() < deadline) completed_.wait_for(lock, std::chrono::milliseconds(2));
    };
    wait_over(3.0);
    if (!over_) {  // stuck with a peer that does not move: leave without it
      lock.unlock();
      abort(kShutdownText);
      lock.lock();
      wait_over(3.0);
    }
  }
  stop_thread_ = true;
  ring_own_bell();
  park_.notify_all();
  thread_.join();
  liveness_->stop();
  timeline_.stop();
}

}  // namespace hvd
