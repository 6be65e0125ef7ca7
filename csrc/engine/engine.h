// SPDX-License-Identifier: Apache-2.0
// One rank's engine: submissions go in, agreed batches are executed, handles complete.
//
// Whoever drives runs progress(): normally the background thread, but a thread that waits for a result takes over and
// drives itself, which saves two context switches on every blocking call. drive_mutex_ says who drives.
//
//   requests.cc   what may be submitted            control.cc  messages up and down
//   engine.cc     threads, waiting, life cycle     execute.cc  a batch of the plan
//   stall.cc      who is everybody waiting for?
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "control/aggregator.h"
#include "control/coordinator.h"
#include "engine/submission.h"
#include "host/channel.h"
#include "host/lane.h"
#include "host/segment.h"
#include "paths/host/comm.h"
#include "util/settings.h"
#include "watch/liveness.h"
#include "watch/metrics.h"
#include "watch/timeline.h"
#include "world/topology.h"

namespace hvd {

class Engine {
 public:
  Engine(const hvd_world& world, const std::vector<hvd_link>& links, const Settings& settings);
  ~Engine();

  int64_t submit(const hvd_request* requests, int32_t n, uint32_t flags, hvd_alloc_fn alloc, hvd_done_fn done,
                 void* context);
  int32_t poll(int64_t handle);
  Status wait(int64_t handle, double timeout_s);
  // Null if unknown.
  std::shared_ptr<Submission> find(int64_t handle);
  void release(int64_t handle);

  // Blocking, collective.
  int32_t add_process_set(std::vector<int> ranks);
  void remove_process_set(int32_t id);
  void attach_links(const std::vector<hvd_link>& links);
  std::vector<int> process_set_ranks(int32_t id);  // empty if unknown
  std::vector<int32_t> process_set_ids();

  // Throws what every new request would get if the job is over.
  void check();
  void abort(const std::string& reason);
  void stop();

  void start_timeline(const std::string& path, bool mark_cycles);
  void stop_timeline();
  std::string metrics();
  void set_where(hvd_where_fn where) { where_ = where; }
  // Everything a forked child must close so that our death is still seen.
  std::vector<int> descriptors() const;

  const Topology topology;

 private:
  using Key = std::pair<int32_t, std::string>;

  // What this rank knows of a cached tensor.
  struct Known {
    uint32_t id;
    Description description;
    Share share;
    std::vector<Share> shares;  // of all members, when they vary
  };

  // requests.cc
  void fill_entry(const hvd_request& request, Entry* entry);
  void check_splits(const hvd_request& request, Entry* entry, int members);
  const Comm& member_comm(const hvd_request& request);
  int64_t enqueue(std::shared_ptr<Submission> submission);
  int64_t submit_internal(int kind, const std::string& name, std::vector<int64_t> shape, int32_t root);

  // engine.cc
  bool progress();
  void background();
  void park(bool caller_stays);
  void wake_background();
  bool drive(Submission* until, double deadline);
  void sleep_on_bell(uint32_t seen, double timeout_s, bool may_spin);
  bool rival_on_core();
  void ring_own_bell() { bells_.ring(topology.local_rank()); }
  void fail_everything(const Status& status);
  bool has_outstanding();
  void handle_abort(const std::string& reason);

  // control.cc
  bool announce_submissions();
  bool receive();
  void from_source(int source, MessageType type, std::string_view body);
  void from_parent(MessageType type, std::string_view body);
  void send_full(Entry* entry);
  void send_cached(const std::vector<uint32_t>& ids);
  void pass_up();
  bool plan_if_root();
  void follow(const Plan& plan, const std::string* encoded);
  void flush_down();
  void forget(uint32_t id);
  void resend_full(uint32_t id);
  void note_ready(const std::vector<Variant>& variants);

  // execute.cc
  void execute(const Batch& batch);
  std::vector<Entry*> match(const Batch& batch, std::vector<Variant>* values);
  void run_allreduce(const Batch& batch, const std::vector<Entry*>& entries, const std::vector<Variant>& values);
  void run_reducescatter(const Batch& batch, const std::vector<Entry*>& entries);
  void run_allgather(const Batch& batch, const std::vector<Entry*>& entries, const std::vector<Variant>& values);
  void run_broadcast(const Batch& batch, Entry* entry);
  void run_alltoall(const Batch& batch, Entry* entry, const Variant& value);
  void change_process_sets(const Batch& batch);
  char* make_output(Entry* entry, std::vector<int64_t> shape);
  void complete(Entry* entry, const Status& status);

  // stall.cc
  void check_stalls();
  void watch_tick();

  Settings settings_;
  std::vector<int> doorbells_;
  std::unique_ptr<Segment> segment_;
  Bells bells_;
  std::unique_ptr<Lane> lane_;
  std::map<int32_t, std::unique_ptr<Comm>> comms_;  // written by the driver under table_mutex_
  double spin_us_;
  bool crowded_;  // more ranks than cores on this host

  // Control plane; touched only by whoever drives.
  std::unique_ptr<Aggregator> node_;               // leaders
  std::unique_ptr<Coordinator> coordinator_;       // rank 0
  std::vector<std::unique_ptr<Channel>> sources_;  // leaders; [0] is this rank itself and has none
  std::unique_ptr<Channel> up_;                    // none on rank 0
  std::map<Key, Known> known_;
  std::unordered_map<uint32_t, Key> key_of_id_;
  std::unordered_map<uint32_t, Entry*> announced_;  // by cached id, until planned
  double next_plan_at_ = 0;
  double next_stall_check_ = 0;
  double last_stall_warning_ = 0;
  double warned_locally_ = 0;  // watch thread only
  bool shutdown_sent_ = false;

  // Submissions, handles and what is pending; any thread.
  std::mutex table_mutex_;
  std::vector<Entry*> queue_;
  std::map<Key, Entry*> pending_;
  std::unordered_map<int64_t, std::shared_ptr<Submission>> handles_;
  int64_t next_handle_ = 1;
  Status ended_;  // not ok: the job is over, and why
  bool shutdown_requested_ = false;

  // Who drives.
  std::mutex drive_mutex_;
  std::atomic<int> user_drivers_{0};
  std::atomic<double> last_user_drive_{0};
  std::condition_variable completed_;  // with table_mutex_
  int waiters_ = 0;
  std::mutex park_mutex_;
  std::condition_variable park_;
  enum Parked { kNotParked, kBriefly, kUntilCalled };
  std::atomic<Parked> parked_{kNotParked};  // the background thread
  std::atomic<bool> stop_thread_{false};
  std::atomic<bool> over_{false};  // ended_ is set
  std::atomic<bool> started_{false};
  std::atomic<bool> backlog_{false};         // something waits for room in a channel
  std::atomic<bool> somebody_waits_{false};  // below this node: the stall watch must look now and then
  std::atomic<bool> shutdown_seen_{false};
  std::atomic<double> goodbye_at_{0};
  std::atomic<double> executing_since_{0};
  std::string executing_name_;  // with park_mutex_
  std::thread thread_;

  Timeline timeline_;
  Metrics metrics_;
  std::atomic<hvd_where_fn> where_{nullptr};
  std::unique_ptr<Liveness> liveness_;
};

// The documented text every operation gets that is outstanding at, or submitted after, a shutdown.
extern const char kShutdownText[];
extern const char kNotInitialisedText[];

}  // namespace hvd
