// SPDX-License-Identifier: Apache-2.0
#include "engine/table.h"

#include <algorithm>
#include <chrono>

#include "util/clock.h"

namespace hvd {

int64_t Table::add(std::shared_ptr<Submission> submission) {
  double now = now_s();
  Lock lock(mutex_);
  if (!ended_.ok()) throw Refused(ended_.code, ended_.text);
  Submission::Entries& entries = submission->entries;
  if (submission->layout) {
    int32_t id = entries.front().description.process_set;
    auto it = sets_.find(id);
    if (it == sets_.end() || it->second != submission->layout)
      throw Refused(HVD_INVALID, "The process set of " + entries.front().description.name + " was removed.");
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    Entry& entry = entries[i];
    entry.name_hash = TensorKey::hash_of(entry.description.process_set, entry.description.name);
    auto [it, added] = pending_.try_emplace(entry.key(), &entry);
    if (!added) {
      for (size_t k = 0; k < i; ++k) pending_.erase(entries[k].key());
      throw Refused(
          HVD_INVALID,
          "Requested to allreduce, allgather, or broadcast a tensor with the same name as another tensor that is "
          "currently being processed.  If you want to request another tensor, use a different tensor name. "
          "(Tensor: " +
              entry.description.name + ", " + topology_.describe() + ")");
    }
    entry.owner = submission.get();
    entry.index = static_cast<int32_t>(i);
    entry.since = now;
  }
  submission->remaining = static_cast<int32_t>(entries.size());
  int64_t handle = next_handle_++;
  submission->handle = handle;
  for (Entry& entry : entries) {
    const Description& d = entry.description;
    entry.record = recorder_.queued(
        {d.name, d.kind_text(), d.dtype, entry.shape, static_cast<int64_t>(entry.bytes), d.process_set}, now);
    queue_.push_back(&entry);
  }
  metrics_.submitted += static_cast<int64_t>(entries.size());
  handles_[handle] = std::move(submission);
  return handle;
}

std::shared_ptr<Submission> Table::find(int64_t handle) {
  Lock lock(mutex_);
  auto it = handles_.find(handle);
  return it == handles_.end() ? nullptr : it->second;
}

void Table::release(int64_t handle) {
  std::shared_ptr<Submission> dying;  // freed outside of the lock
  Lock lock(mutex_);
  auto it = handles_.find(handle);
  if (it == handles_.end()) return;
  if (!it->second->done) {
    it->second->flags |= HVD_AUTO_RELEASE;
    return;
  }
  dying = std::move(it->second);
  handles_.erase(it);
  lock.unlock();
}

bool Table::outstanding() {
  Lock lock(mutex_);
  return !pending_.empty();
}

size_t Table::depth() {
  Lock lock(mutex_);
  return pending_.size();
}

std::optional<Table::Oldest> Table::oldest() {
  Lock lock(mutex_);
  const Entry* first = nullptr;
  for (auto& [key, entry] : pending_)
    if (!first || entry->since < first->since) first = entry;
  if (!first) return std::nullopt;
  return Oldest{first->since, first->description.name, first->description.kind_text()};
}

void Table::take_queued(std::vector<Entry*>* entries) {
  Lock lock(mutex_);
  entries->insert(entries->end(), queue_.begin(), queue_.end());
  queue_.clear();
}

Entry* Table::pending(const TensorKey& key) {
  Lock lock(mutex_);
  auto it = pending_.find(key);
  return it == pending_.end() ? nullptr : it->second;
}

void Table::board(const std::vector<TensorKey>& keys, std::vector<Tensor*>* entries) {
  Lock lock(mutex_);
  for (const TensorKey& key : keys) {
    auto it = pending_.find(key);
    Entry* entry = it == pending_.end() ? nullptr : it->second;
    if (entry) entry->in_flight = true;
    entries->push_back(entry);
  }
}

void Table::disembark(const std::vector<Tensor*>& entries) {
  Lock lock(mutex_);
  for (Tensor* entry : entries)
    if (entry) static_cast<Entry*>(entry)->in_flight = false;
}

void Table::finish_joins(int last_rank) {
  Lock lock(mutex_);
  std::vector<Entry*> joins;
  for (auto& [key, entry] : pending_)
    if (entry->description.kind == HVD_JOIN) joins.push_back(entry);
  std::vector<std::shared_ptr<Submission>> done;
  for (Entry* entry : joins) {
    entry->value = last_rank;
    end_entry(entry, {}, &done);
  }
  announce(done, &lock);
}

void Table::end_entry(Entry* entry, const Status& status, std::vector<std::shared_ptr<Submission>>* done) {
  auto it = pending_.find(entry->key());
  if (it == pending_.end() || it->second != entry) return;  // ended already
  pending_.erase(it);
  Submission* submission = entry->owner;
  const Status& own = status.ok() ? entry->problem : status;
  double now = now_s();
  recorder_.ended(entry->record, now, own.ok());
  metrics_.latency.add(static_cast<int64_t>((now - entry->since) * 1e6));
  if (!own.ok() && submission->status.ok()) submission->status = own;
  if (--submission->remaining == 0) done->push_back(handles_.at(submission->handle));
}

void Table::announce(const std::vector<std::shared_ptr<Submission>>& done, Lock* lock) {
  if (done.empty()) return;
  bool callbacks = false;
  for (const auto& submission : done) {
    if (submission->done_callback) callbacks = true;
    else submission->done.store(true, std::memory_order_release);
  }
  if (callbacks) {
    lock->unlock();
    for (const auto& s : done)
      if (s->done_callback) {
        s->done.store(true, std::memory_order_release);
        s->done_callback(s->context, s->handle, s->status.code, s->status.text.c_str());
      }
    lock->lock();
  }
  for (const auto& submission : done)
    if (submission->flags & HVD_AUTO_RELEASE) handles_.erase(submission->handle);
  if (waiters_) changed_.notify_all();
}

void Table::complete(const std::vector<Tensor*>& entries, const Status& status) {
  std::vector<std::shared_ptr<Submission>> done;
  Lock lock(mutex_);
  for (Tensor* entry : entries)
    if (entry) end_entry(static_cast<Entry*>(entry), status, &done);
  announce(done, &lock);
  lock.unlock();  // before what was released by itself is freed
}

void Table::end(const Status& status) {
  std::vector<std::shared_ptr<Submission>> done;
  Lock lock(mutex_);
  if (over_) return;
  ended_ = status;
  over_ = true;
  queue_.clear();
  std::vector<Entry*> waiting;
  for (auto& [key, entry] : pending_)
    if (!entry->in_flight) waiting.push_back(entry);
  for (Entry* entry : waiting) end_entry(entry, status, &done);
  announce(done, &lock);
  changed_.notify_all();
  lock.unlock();
}

Status Table::ended() {
  Lock lock(mutex_);
  return ended_;
}

void Table::check() {
  Status status = ended();
  if (!status.ok()) throw Refused(status.code, status.text);
}

void Table::wait(const Submission& submission, double seconds) {
  Lock lock(mutex_);
  if (submission.done.load(std::memory_order_acquire) || seconds <= 0) return;
  ++waiters_;
  changed_.wait_for(lock, std::chrono::duration<double>(seconds));
  --waiters_;
}

bool Table::hand_over() {
  Lock lock(mutex_);
  if (waiters_) changed_.notify_all();
  return !pending_.empty();
}

bool Table::wait_over(double seconds) {
  Lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return over_.load(); });
}

std::shared_ptr<const SetLayout> Table::set(int32_t id) {
  Lock lock(mutex_);
  auto it = sets_.find(id);
  return it == sets_.end() ? nullptr : it->second;
}

std::vector<int32_t> Table::set_ids() {
  Lock lock(mutex_);
  std::vector<int32_t> ids;
  for (auto& [id, layout] : sets_) ids.push_back(id);
  return ids;
}

int32_t Table::find_set(const std::vector<int>& members) {
  Lock lock(mutex_);
  for (auto& [id, layout] : sets_)
    if (layout->members == members) return id;
  return -1;
}

void Table::add_set(int32_t id, std::shared_ptr<const SetLayout> layout) {
  Lock lock(mutex_);
  sets_[id] = std::move(layout);
}

void Table::remove_set(int32_t id) {
  std::vector<std::shared_ptr<Submission>> done;
  Lock lock(mutex_);
  sets_.erase(id);
  auto gone = [id](const Entry* entry) { return entry->description.process_set == id; };
  queue_.erase(std::remove_if(queue_.begin(), queue_.end(), gone), queue_.end());
  std::vector<Entry*> waiting;
  for (auto& [key, entry] : pending_)
    if (gone(entry) && !entry->in_flight) waiting.push_back(entry);
  for (Entry* entry : waiting)
    end_entry(entry,
              {HVD_INVALID, "The process set of " + entry->description.name + " was removed while it was waiting."},
              &done);
  announce(done, &lock);
  lock.unlock();
}

}  // namespace hvd
