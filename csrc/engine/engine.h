// SPDX-License-Identifier: Apache-2.0
// One rank's engine: submissions go in, agreed batches are executed, handles complete.
//
//   table      what was submitted, by handle and by name       any thread, one mutex
//   announcer  what this rank tells the tree                   driving thread
//   node       the control tree: messages up, the plan down    driving thread
//   executor   batches in flight on their data paths           driving thread starts, any thread ends
//   driver     who drives, who sleeps                          any thread
//   quick      the short way of small blocking calls           driving thread
//   wire       other hosts' leaders, for those calls           driving thread
//   stall      who is everybody waiting for?                   driving thread, watch thread
//   ending     who left, and why                               any thread
//   recorder   the last collectives of this rank               any thread
//   liveness   who is still there?                             watch thread
//
// This class only makes the rooms, connects them, and decides what an end of the job means.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/announcer.h"
#include "engine/control_node.h"
#include "engine/driver.h"
#include "engine/ending.h"
#include "engine/executor.h"
#include "engine/quick_call.h"
#include "engine/stall.h"
#include "engine/table.h"
#include "host/doorbells.h"
#include "host/segment.h"
#include "net/link_security.h"
#include "net/open_link.h"
#include "paths/host/host_path.h"
#include "paths/paths.h"
#include "util/fd.h"
#include "util/settings.h"
#include "watch/liveness.h"
#include "watch/metrics.h"
#include "watch/nvtx.h"
#include "watch/quit_signal.h"
#include "watch/recorder.h"
#include "watch/steps.h"
#include "watch/timeline.h"
#include "world/topology.h"

namespace hvd {

// What hvd_start was given. What the engine does not take over is closed.
struct Inheritance {
  UniqueFd shared_memory;  // none if this rank is alone on its host
  std::vector<UniqueFd> doorbells;
  std::vector<OpenLink> links;
};

// Data paths beside the host's. They are preferred to it, in this order.
using PathMaker = std::function<std::unique_ptr<DataPath>(HostPath& host)>;

class Engine : private ControlNode::Listener {
 public:
  Engine(Topology topology, Inheritance inheritance, const Settings& settings,
         const std::vector<PathMaker>& more_paths = {});
  ~Engine() override;

  int64_t submit(const hvd_request* requests, int32_t n, uint32_t flags, hvd_alloc_fn alloc, hvd_done_fn done,
                 void* context);
  // A blocking call, by the short way: true if that was possible, and it is done. False: submit it.
  bool call_quickly(const hvd_request* requests, int32_t n) {
    return n == 1 && requests && quick_.may_serve(*requests) && driver_.if_free([&] { return quick_.run(*requests); });
  }
  // Device memory: done means that the device is, too.
  int32_t poll(int64_t handle);
  Status wait(int64_t handle, double timeout_s);
  // Until the work is enqueued; the stream then waits for the device, and the caller does not.
  Status wait_stream(int64_t handle, void* stream, double timeout_s);
  // Of a completed output that is the engine's own memory of a device.
  void copy_output(int64_t handle, int32_t index, void* to, void* stream);
  std::shared_ptr<Submission> find(int64_t handle) { return table_.find(handle); }  // null if unknown
  void release(int64_t handle) { table_.release(handle); }

  // Blocking, collective.
  int32_t add_process_set(std::vector<int> ranks);
  void remove_process_set(int32_t id);
  void attach_links(std::vector<OpenLink> links);
  std::vector<int> process_set_ranks(int32_t id);  // empty if unknown
  std::vector<int32_t> process_set_ids() { return table_.set_ids(); }

  // Throws what every new request would get if the job is over.
  void check() { table_.check(); }
  void abort(const std::string& reason);
  void stop(const std::string& reason);

  void start_timeline(const std::string& path, bool mark_cycles);
  void stop_timeline() { timeline_.stop(); }
  bool traced() const { return timeline_.active(); }
  // A front end copied a tensor, before its collective or after it. Times by now_s().
  void copied(const char* name, bool after, double from, double to) {
    timeline_.copied(name, after ? "COPY_OUT" : "COPY_IN", from, to);
  }
  // As the header says; observe.cc. restarts: how often this process has started an engine before.
  std::string metrics(int64_t restarts);
  std::string now();
  std::string recent() const { return recorder_.json(); }
  // A step is done, or with a text: a mark of the user's.
  void mark(const char* text);
  std::string device_report() const { return paths_.report(); }
  void set_where(hvd_where_fn where) { where_ = where; }
  // Says on standard error what this rank does, did last, and where it is.
  void show();
  // Everything a forked child must close so that our death is still seen.
  std::vector<int> descriptors() const;

  const Topology topology;

 private:
  // The driving thread.
  Driver::Turn progress();
  void follow(const Plan& plan) override;
  void retune(const Tuning& tuning) override;
  void need_full(uint32_t id) override { announcer_.say_in_full(id); }
  void change_process_sets(const Batch& batch);
  void end_after(const std::string& reason);
  void note_missing();
  // Puts a line with this rank's last collectives into the flight recorder's file, if there is one.
  bool write_down(const std::string& why, bool with_stacks);
  // The same when the job fails; returns what to add to its error.
  std::string after_failure(const std::string& why);
  std::string where();
  // The watch thread.
  double patience(double on_one_host) const;
  void tick();

  ControlNode::Channels make_channels(std::vector<OpenLink>& links);
  Liveness::Callbacks liveness_callbacks();
  std::vector<int> sockets() const;
  QuickCall::Options quick_options() const;
  Status device_status(const Submission& submission);
  // False when the time is over.
  bool await(const DevicePoint& point, double deadline);
  void check_aborted();
  Status run_internal(int kind, const std::string& name, std::vector<int64_t> shape, int32_t root, int64_t* value);

  Settings settings_;  // what may change while it runs, only the driving thread reads: see retune
  Metrics metrics_;
  Recorder recorder_;
  Timeline timeline_;
  Steps steps_;
  const Nvtx nvtx_;
  const LinkSecurity security_;
  Segment segment_;
  Doorbells bells_;
  const bool crowded_;  // more ranks than cores on this host
  Paths paths_;
  HostPath& host_path_;  // one of paths_
  Table table_;
  Ending ending_;
  std::atomic<hvd_where_fn> where_{nullptr};
  Liveness liveness_;
  ControlNode node_;
  const std::unique_ptr<QuickWire> wire_;  // leaders of a few hosts
  Announcer announcer_;
  Executor executor_;
  StallWatch stall_;
  Driver driver_;
  uint32_t tuning_ = 0;      // number of the last tuning
  uint64_t last_batch_ = 0;  // of the plan
  QuickCall quick_;
  std::atomic<bool> stopped_{false};
  // Leaders: who has not submitted what waits longest. The driving thread says it when asked.
  struct Missing {
    std::string name;
    std::vector<int> ranks;
  };
  std::mutex failure_mutex_;
  std::optional<bool> failure_kept_;  // guarded by failure_mutex_: whether it could be written down
  std::atomic<bool> missing_wanted_{false};
  std::mutex missing_mutex_;
  Missing missing_;  // guarded by missing_mutex_
  QuitSignal quit_signal_;
};

extern const char kNotInitialisedText[];

}  // namespace hvd
