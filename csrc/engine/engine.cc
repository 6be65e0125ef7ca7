// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "control/knobs.h"
#include "engine/requests.h"
#include "host/mailbox_channel.h"
#include "net/socket_channel.h"
#include "paths/cuda/cuda_path.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/cores.h"
#include "util/log.h"
#include "util/text.h"
#include "world/link_plan.h"

namespace hvd {
namespace {

// A goodbye whose shutdown the plan did not bring within this time will not come: this rank is stuck.
constexpr double kGoodbyeGrace = 2.0;
// How long a rank that leaves waits for the others to be told, and then for itself to let go.
constexpr double kLeaveWithin = 3.0;
// A rank alone does so much while it submits.
constexpr size_t kAtOnceBytes = 64 << 10;
// More ranks than this on a host do not look at each other's memory one by one.
constexpr int kMostQuickly = 64;
// How long a failed job waits for a device to let go of a tensor before the caller is told.
constexpr double kLeaveMemoryWithin = 0.5;

std::vector<UniqueFd> own_doorbell(std::vector<UniqueFd> given, int local_size) {
  if (local_size > 1 && given.size() == static_cast<size_t>(local_size)) return given;
  if (local_size > 1) throw Refused(HVD_INVALID, "a doorbell for each rank of this host is needed");
  given.clear();
  given.emplace_back(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return given;
}

HostPath& add_paths(Paths& paths, const std::vector<PathMaker>& more, const Topology& topology,
                    const Settings& settings, std::unique_ptr<HostPath> host) {
  HostPath& path = *host;
  for (const PathMaker& make : more) paths.add(make(path));
  paths.add(std::make_unique<cuda::CudaPath>(topology, path, settings));
  paths.add(std::move(host));
  return path;
}

Settings configured(Settings settings) {
  configure_log(settings.log_level, settings.log_hide_time);
  if (std::string problem = start_from(settings); !problem.empty()) throw Refused(HVD_INVALID, problem);
  return settings;
}

// A rank alone waits for nobody: what is small is done sooner than a thread is woken for it.
bool is_small(const Submission& submission) {
  size_t bytes = 0;
  for (const Entry& entry : submission.entries) {
    if (entry.device >= 0) return false;
    bytes += entry.bytes;
  }
  return bytes <= kAtOnceBytes;
}

double spin_time(const Settings& settings, int local_size, bool crowded) {
  // Spinning beats sleeping while every rank of the host has a core to itself; otherwise it offers the core to the
  // others all the time, which is still cheaper than being woken.
  if (settings.spin_us >= 0) return settings.spin_us;
  return local_size == 1 ? 0 : crowded ? 50 : 100;
}

}  // namespace

const char kNotInitialisedText[] = "Horovod has not been initialized; use hvd.init().";

Engine::Engine(Topology topology_given, Inheritance inheritance, const Settings& settings,
               const std::vector<PathMaker>& more_paths)
    : topology(std::move(topology_given)),
      settings_(configured(settings)),
      metrics_(topology.rank, topology.size),
      recorder_(topology.rank),
      timeline_({topology.rank, topology.size, topology.host_names[static_cast<size_t>(topology.host())]}),
      steps_(metrics_, timeline_),
      nvtx_(settings_.nvtx_library),
      security_(topology, settings_.link_security, settings_.crypto_library),
      segment_(topology.local_size() == 1 ? UniqueFd() : std::move(inheritance.shared_memory), topology.local_size(),
               static_cast<size_t>(staging_bytes(settings))),
      bells_(segment_, topology.local_rank(), own_doorbell(std::move(inheritance.doorbells), topology.local_size())),
      crowded_(topology.local_size() > usable_cores()),
      host_path_(add_paths(
          paths_, more_paths, topology, settings_,
          std::make_unique<HostPath>(topology, segment_, security_,
                                     HostPath::Options{spin_time(settings_, topology.local_size(), crowded_), !crowded_,
                                                       lower(settings_.cpu_operations) == "mpi"}))),
      table_(topology, metrics_, recorder_),
      ending_(topology),
      liveness_(topology, inheritance.links, security_, liveness_callbacks()),
      node_(topology, settings_, make_channels(inheritance.links), *this, timeline_, metrics_,
            [this] { check_aborted(); }),
      wire_(QuickWire::make(topology, inheritance.links, security_)),
      announcer_(table_, node_, recorder_),
      executor_(topology, table_, announcer_, paths_, segment_, timeline_, steps_, nvtx_, metrics_, recorder_,
                settings_.fusion_threshold,
                {[this] { bells_.ring_own(); }, [this](const std::string& why) { abort(why); }}),
      stall_(topology, settings_, node_, executor_, table_, paths_, liveness_,
             [this](const std::string& why) { abort(why); }),
      driver_(topology, segment_, bells_, table_, sockets(), [this] { return progress(); },
              {spin_time(settings_, topology.local_size(), crowded_), crowded_, settings_.thread_affinity}),
      quick_(topology, segment_, bells_, wire_.get(), table_, announcer_, executor_, timeline_, quick_options(),
             [this] { progress(); }),
      quit_signal_([this] { show(); }) {
  paths_.tune(settings_);
  announcer_.before_speaking([this] { quick_.goes_another_way(); });
  auto everyone = std::make_shared<const SetLayout>(topology, topology.everyone());
  table_.add_set(0, everyone);
  paths_.add_set(0, everyone);
  host_path_.attach(std::move(inheritance.links));
  HVD_LOG(Debug, "[" << topology.rank << "]: generation " << topology.generation << " of the world: " << topology.size
                     << " ranks on " << topology.hosts() << " hosts");
  if (topology.is_coordinator() && !topology.homogeneous())
    HVD_LOG(Info, "Hosts run different numbers of ranks; only " << everyone->columns
                                                                << " of each exchange data with other hosts.");
  timeline_.follow_devices([this](bool last) { return paths_.take_work(last); });
  if (!settings_.timeline.empty() && lower(settings_.timeline) != "dynamic")
    timeline_.start(timeline_path(settings_.timeline, topology.rank), settings_.timeline_mark_cycles,
                    settings_.timeline_max_bytes);
  liveness_.start();
  driver_.start();
}

Engine::~Engine() { stop(""); }

ControlNode::Channels Engine::make_channels(std::vector<OpenLink>& links) {
  auto socket_to = [&](int leader) -> std::unique_ptr<Channel> {
    for (OpenLink& link : links)
      if (link.what.kind == HVD_LINK_CONTROL && link.what.peer == leader && link.fd)
        return std::make_unique<SocketChannel>(std::move(link.fd), security_.seals_for(link.what),
                                               topology.describe(leader));
    throw Refused(HVD_INVALID, "the control link to " + topology.describe(leader) + " is missing");
  };
  ControlNode::Channels channels;
  int me = topology.local_rank();
  if (!topology.is_leader()) {
    channels.up = std::make_unique<MailboxChannel>(segment_.up(me), segment_.down(me), bells_, 0);
    return channels;
  }
  channels.sources.emplace_back(nullptr);
  for (int local = 1; local < topology.local_size(); ++local)
    channels.sources.push_back(
        std::make_unique<MailboxChannel>(segment_.down(local), segment_.up(local), bells_, local));
  for (int child : tree_children(topology.host(), topology.hosts()))
    channels.sources.push_back(socket_to(topology.leader_of(child)));
  if (!topology.is_coordinator()) channels.up = socket_to(topology.leader_of(tree_parent(topology.host())));
  return channels;
}

// Ranks that come to different answers make every short call a long one, but no mistake. The tuner sees what is
// planned.
QuickCall::Options Engine::quick_options() const {
  SetLayout everyone(topology, topology.everyone());
  double spin_us = spin_time(settings_, topology.local_size(), crowded_);
  bool tunes = settings_.autotune && topology.size > 1;
  bool over_mpi = lower(settings_.cpu_operations) == "mpi" && topology.hosts() > 1;
  bool enabled = topology.hosts() <= kQuickHosts && topology.local_size() <= kMostQuickly &&
                 settings_.cycle_time <= 0 && !tunes && !over_mpi && !nvtx_.active() &&
                 (topology.local_size() == 1 || spin_us > 0) && paths_.choose(-1, everyone) == &host_path_;
  return {enabled, spin_us, spin_time(settings_, 2, crowded_), crowded_, sockets()};
}

void Engine::attach_links(std::vector<OpenLink> links) {
  driver_.exclusively([&] { host_path_.attach(std::move(links)); });
}

std::vector<int> Engine::sockets() const {
  std::vector<int> fds = node_.sockets();
  if (wire_) fds.push_back(wire_->descriptor());
  return fds;
}

Liveness::Callbacks Engine::liveness_callbacks() {
  Liveness::Callbacks callbacks;
  callbacks.aborted = [this](const std::string& text) {
    paths_.abort(text);
    bells_.ring_own();
    after_failure(text);
  };
  callbacks.said_goodbye = [this](const std::string& cause) { ending_.heard_goodbye(cause); };
  callbacks.last_words = [this](int rank) {
    return topology.same_host(rank) ? segment_.last(topology.local_rank_of[rank]) : "";
  };
  callbacks.where = [this] { return where(); };
  callbacks.found = [this](int rank, const std::string& text) {
    if (!topology.is_coordinator() || text.empty()) return;
    std::string instead = stall_.instead(rank);
    HVD_LOG(Warning, "[" << topology.rank << "]: " << topology.describe(rank) << " "
                         << (instead.empty() ? "is at " : instead + "; it went another way at ") << text);
  };
  callbacks.write_down = [this](const std::string& why) { write_down(why, true); };
  callbacks.clock = [this](int64_t us) { timeline_.set_clock_offset(us); };
  callbacks.tick = [this] { tick(); };
  return callbacks;
}

// ------------------------------------------------------------------------------------ the driving thread --

void Engine::check_aborted() {
  if (segment_.aborted()) throw JobAborted(segment_.abort_text());
}

Driver::Turn Engine::progress() {
  if (table_.over()) return {false, 1.0};
  try {
    check_aborted();
    std::string reason;
    bool leaving = ending_.take_request(&reason);
    if (leaving) {
      quick_.goes_another_way();
      node_.say_shutdown(reason);
    }
    bool announced = announcer_.announce();
    bool did = node_.turn() || announced;
    quick_.tend(node_.somebody_waits());
    stall_.check();
    note_missing();
    double idle = node_.somebody_waits() ? 0.1 : 1.0;  // the stall watch must look now and then
    if (settings_.cycle_time > 0) idle = std::min(idle, settings_.cycle_time * 1e-3);
    if (node_.has_backlog()) idle = 1e-3;
    return {did || leaving, idle, announced};
  } catch (const JobAborted& e) {
    end_after(e.what());
  } catch (const ParseError& e) {
    end_after(std::string("a control message could not be read (") + e.what() +
              "); do all ranks run the same version of this package?");
  } catch (const std::exception& e) {
    end_after("internal error on " + topology.describe() + ": " + e.what());
  }
  return {true, 0};
}

// Every rank comes here before the same batch: all that it does next runs with the new values.
void Engine::retune(const Tuning& tuning) {
  if (tuning.number != tuning_ + 1) throw ParseError("tuning " + std::to_string(tuning.number) + " came out of order");
  tuning_ = tuning.number;
  apply(tuning, settings_);
  paths_.tune(settings_);
  double spin_us = spin_time(settings_, topology.local_size(), crowded_);
  host_path_.set_spin(spin_us);
  driver_.set_spin(spin_us);
  std::string values;
  for (const auto& [name, value] : tuning.values) values += " " + name + "=" + number_text(value);
  HVD_LOG(Debug, "[" << topology.rank << "]: tuning " << tuning_ << " after batch " << last_batch_ << ":" << values);
}

void Engine::follow(const Plan& plan) {
  if (!plan.batches.empty()) last_batch_ = plan.batches.back().seq;
  for (const Batch& batch : plan.batches) {
    if (batch.kind == HVD_JOIN) table_.finish_joins(batch.joined_last);
    else if (batch.kind >= kAddProcessSet) change_process_sets(batch);
    else executor_.execute(batch);
  }
  announcer_.forget(plan.evicted);
  if (plan.shutdown) {
    liveness_.expect_goodbyes();
    std::string text = ending_.planned(plan.departure);
    table_.end({HVD_UNKNOWN, text + (plan.departure.reason.empty() ? "" : after_failure(text))});
  }
}

// A broken connection is a symptom: the obituary that names the cause is usually a moment behind.
void Engine::end_after(const std::string& reason) {
  for (int i = 0; i < 50 && !segment_.aborted() && !ending_.heard(); ++i) usleep(10000);
  std::string text = segment_.aborted() ? segment_.abort_text()
                     : ending_.heard()  ? ending_.goodbye_text()
                                        : reason + " (seen by " + topology.describe() + ")";
  liveness_.broadcast_abort(text);
  paths_.abort(text);
  paths_.leave_memory(kLeaveMemoryWithin);  // their owners may use it again as soon as they know
  table_.end({HVD_UNKNOWN, text + (segment_.aborted() || !ending_.heard() ? after_failure(text) : "")});
}

// After an outage of the network TCP sends again after a pause as long as the outage: the last data and the plan may
// come seconds behind the goodbye, which has a connection of its own.
double Engine::patience(double on_one_host) const {
  return topology.hosts() > 1 ? std::max(on_one_host, settings_.network_timeout_seconds) : on_one_host;
}

// On every rank, from the watch thread.
void Engine::tick() {
  if (table_.over() || segment_.aborted()) return;
  if (ending_.since_goodbye() > patience(kGoodbyeGrace) && !ending_.is_planned()) {
    paths_.abort(ending_.goodbye_text());
    bells_.ring_own();
    return;
  }
  stall_.tick();
}

// -------------------------------------------------------------------------------------------- any thread --

int64_t Engine::submit(const hvd_request* requests, int32_t n, uint32_t flags, hvd_alloc_fn alloc, hvd_done_fn done,
                       void* context) {
  if (n < 1 || !requests) throw Refused(HVD_INVALID, "nothing to submit");
  for (int32_t i = 0; i < n; ++i) check_request(requests[i]);
  auto submission = Submission::make(n);
  submission->flags = flags;
  submission->done_callback = done;
  submission->context = context;
  submission->layout = table_.set(requests[0].process_set);
  bool grouped = (n > 1 && !(flags & HVD_APART)) || (flags & HVD_GROUP);
  uint64_t group = grouped ? group_key(requests, n) : 0;
  for (int32_t i = 0; i < n; ++i) {
    if (requests[i].process_set != requests[0].process_set)
      throw Refused(HVD_INVALID, "tensors that are submitted together must be of one process set");
    Entry& entry = submission->entries[i];
    fill_entry(requests[i], topology, submission->layout.get(), paths_, &entry);
    entry.late = (flags & HVD_WILL_WAIT) != 0;
    entry.in_stream = (flags & HVD_IN_STREAM) != 0;
    if (entry.device >= 0)
      paths_.choose(entry.device, *submission->layout)
          ->prepare(requests[i], entry, i ? &submission->entries[i - 1] : nullptr);
    entry.alloc = alloc;
    entry.alloc_context = context;
    entry.description.group = group;
    entry.description.group_size = group ? n : 0;
  }
  bool at_once = topology.size == 1 && !(flags & HVD_WILL_WAIT) && !alloc && !done && is_small(*submission);
  int64_t handle = table_.add(std::move(submission));
  if (at_once && driver_.if_free([this] {
        progress();
        return true;
      }))
    return handle;
  // A GPU would stand idle until the end of a nap.
  if (!(flags & HVD_WILL_WAIT)) driver_.queued(!done && requests[0].device < 0);
  return handle;
}

int32_t Engine::poll(int64_t handle) {
  auto submission = find(handle);
  if (!submission) throw Refused(HVD_INVALID, "unknown handle " + std::to_string(handle));
  if (!submission->done.load(std::memory_order_acquire)) {
    driver_.hurry();
    return 0;
  }
  for (const Entry& entry : submission->entries)
    if (entry.result && !entry.result->reached() && !segment_.aborted()) return 0;
  return 1;
}

Status Engine::wait(int64_t handle, double timeout_s) {
  auto submission = find(handle);
  if (!submission) return {HVD_INVALID, "unknown handle " + std::to_string(handle)};
  double deadline = timeout_s < 0 ? 1e18 : now_s() + timeout_s;
  Status status = driver_.wait(*submission, timeout_s);
  if (!status.ok()) return status;
  for (const Entry& entry : submission->entries)
    if (entry.result && !await(*entry.result, deadline)) return {HVD_TIMEOUT, "not done yet"};
  return device_status(*submission);
}

Status Engine::wait_stream(int64_t handle, void* stream, double timeout_s) {
  auto submission = find(handle);
  if (!submission) return {HVD_INVALID, "unknown handle " + std::to_string(handle)};
  Status status = driver_.wait(*submission, timeout_s);
  if (status.ok()) status = device_status(*submission);
  if (!status.ok()) return status;
  const DevicePoint* last = nullptr;
  for (const Entry& entry : submission->entries) {
    bool there = entry.in_stream && entry.stream == stream;
    if (entry.result && entry.result.get() != last && !there) entry.result->precede(stream);
    last = entry.result.get();
  }
  return status;
}

// The device is on its own after the work was enqueued. Once the job has failed its results are undefined; the caller
// hears of it when the device has left the memory, or after a while.
Status Engine::device_status(const Submission& submission) {
  if (!segment_.aborted()) return {};
  bool any = false;
  double deadline = now_s() + kLeaveMemoryWithin;
  for (const Entry& entry : submission.entries) {
    if (!entry.result) continue;
    any = true;
    while (!entry.result->reached() && now_s() < deadline) usleep(100);
  }
  return any ? Status{HVD_UNKNOWN, segment_.abort_text()} : Status{};
}

bool Engine::await(const DevicePoint& point, double deadline) {
  for (double start = now_s(); !point.reached() && !segment_.aborted();) {
    double now = now_s();
    if (now >= deadline) return false;
    if (now - start > 200e-6) usleep(20);
  }
  return true;
}

void Engine::copy_output(int64_t handle, int32_t index, void* to, void* stream) {
  auto submission = find(handle);
  Entry& entry = submission ? submission->entries.at(static_cast<size_t>(index))
                            : throw Refused(HVD_INVALID, "unknown handle " + std::to_string(handle));
  if (!submission->done) throw Refused(HVD_INVALID, "not done yet");
  Status status = device_status(*submission);
  if (!status.ok()) throw Refused(status.code, status.text);
  if (!entry.on_device)
    throw Refused(HVD_INVALID, entry.description.name + " has no output of the engine's on a device");
  paths_.choose(entry.device, *submission->layout)->copy_output(entry, to, stream);
}

void Engine::abort(const std::string& reason) {
  liveness_.broadcast_abort(reason);
  paths_.abort(reason);
  bells_.ring_own();
}

void Engine::stop(const std::string& reason) {
  if (stopped_.exchange(true)) return;
  quit_signal_.stop();
  ending_.ask(reason);
  driver_.queued(false);
  // Everybody is told before this rank's links close. A rank that cannot hear is not waited for.
  if (!table_.wait_over(patience(kLeaveWithin))) {  // stuck with a peer that does not move: leave without it
    abort(std::string(kShutdownText) + " " + ending_.cause());
    table_.wait_over(kLeaveWithin);
  }
  driver_.stop();
  if (!executor_.drain(kLeaveWithin)) {
    paths_.abort(std::string(kShutdownText) + " " + ending_.cause());
    executor_.drain(kLeaveWithin);
  }
  liveness_.stop(ending_.cause());
  timeline_.stop();
}

void Engine::start_timeline(const std::string& path, bool mark_cycles) {
  std::string own = timeline_path(path, topology.rank);
  if (!timeline_.start(own, mark_cycles, settings_.timeline_max_bytes))
    throw Refused(HVD_INVALID, "cannot write the timeline to " + own);
}

std::vector<int> Engine::descriptors() const {
  std::vector<int> fds = bells_.descriptors();
  for (int fd : node_.sockets()) fds.push_back(fd);
  if (wire_)
    for (int fd : wire_->descriptors()) fds.push_back(fd);
  for (int fd : paths_.descriptors()) fds.push_back(fd);
  for (int fd : liveness_.descriptors()) fds.push_back(fd);
  if (quit_signal_.descriptor() >= 0) fds.push_back(quit_signal_.descriptor());
  return fds;
}

}  // namespace hvd
