// SPDX-License-Identifier: Apache-2.0
// Every submission from hvd_submit to hvd_release, and the process sets they may name. Any thread.
//
// mutex_ guards everything here that is not atomic, and the fields of an Entry and a Submission that say so. No
// callback runs, and no other lock is taken, while it is held.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/submission.h"
#include "util/reused.h"
#include "util/status.h"
#include "watch/metrics.h"
#include "watch/recorder.h"
#include "world/topology.h"

namespace hvd {

class Table {
 public:
  Table(const Topology& topology, Metrics& metrics, Recorder& recorder)
      : topology_(topology), metrics_(metrics), recorder_(recorder) {}

  // ---- submissions ----
  // Queues a submission and returns its handle. Throws Refused: the job is over, a name is taken, or its process set
  // went away since it was checked.
  int64_t add(std::shared_ptr<Submission> submission);
  // Null if unknown.
  std::shared_ptr<Submission> find(int64_t handle);
  // Forgets a submission, as soon as it is done.
  void release(int64_t handle);
  bool outstanding();
  size_t depth();  // tensors that are not done
  // For those who watch: the submission that waits longest.
  struct Oldest {
    double since;
    std::string name;
    const char* kind;
  };
  std::optional<Oldest> oldest();

  // ---- the driving thread ----
  // What was queued since the last call is appended.
  void take_queued(std::vector<Entry*>* entries);
  // The entry that waits under a name, or null.
  Entry* pending(const TensorKey& key);
  // The same for a batch that a data path is going to have: these entries are in flight from now on.
  void board(const std::vector<TensorKey>& keys, std::vector<Tensor*>* entries);
  // The batch did not take off: its entries wait again.
  void disembark(const std::vector<Tensor*>& entries);
  void finish_joins(int last_rank);

  // ---- the end of entries, any thread ----
  // Each entry ends once; null and ended ones are passed over. Callbacks run here.
  void complete(const std::vector<Tensor*>& entries, const Status& status);
  // The job is over: what comes later is refused with this status, and what waits fails with it. What is in flight ends
  // when its path says so. Only the first call counts.
  void end(const Status& status);
  bool over() const { return over_.load(std::memory_order_acquire); }
  Status ended();
  // Throws what every new request would get if the job is over.
  void check();

  // ---- waiting ----
  // Until the submission is done, somebody has stopped driving, or the time is over.
  void wait(const Submission& submission, double seconds);
  // Says that the caller drives no longer; true if there is work left for the next.
  bool hand_over();
  // Until the job is over.
  bool wait_over(double seconds);

  // ---- process sets ----
  std::shared_ptr<const SetLayout> set(int32_t id);  // null if unknown
  std::vector<int32_t> set_ids();
  // The id of a set with exactly these members, or -1.
  int32_t find_set(const std::vector<int>& members);
  void add_set(int32_t id, std::shared_ptr<const SetLayout> layout);
  // What waits there fails; what is in flight ends as it would have.
  void remove_set(int32_t id);

 private:
  using Lock = std::unique_lock<std::mutex>;
  // Ends an entry; its submission is added to `done` if that was its last.
  void end_entry(Entry* entry, const Status& status, std::vector<std::shared_ptr<Submission>>* done);
  // Marks submissions as done, with their callbacks. The lock is released meanwhile.
  void announce(const std::vector<std::shared_ptr<Submission>>& done, Lock* lock);

  const Topology& topology_;
  Metrics& metrics_;
  Recorder& recorder_;

  std::mutex mutex_;
  std::vector<Entry*> queue_;  // not announced yet
  template <typename Name, typename Value>
  using Node = Reused<std::pair<const Name, Value>>;
  using Owner = std::shared_ptr<Submission>;
  // By the names of the entries themselves.
  std::unordered_map<TensorKey, Entry*, TensorKeyHash, std::equal_to<>, Node<TensorKey, Entry*>> pending_;
  std::unordered_map<int64_t, Owner, std::hash<int64_t>, std::equal_to<>, Node<int64_t, Owner>> handles_;
  int64_t next_handle_ = 1;
  std::map<int32_t, std::shared_ptr<const SetLayout>> sets_;
  Status ended_;  // not ok: the job is over, and why
  std::atomic<bool> over_{false};
  std::condition_variable changed_;  // a submission is done, somebody stopped driving, or the job is over
  int waiters_ = 0;
};

}  // namespace hvd
