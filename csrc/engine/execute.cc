// SPDX-License-Identifier: Apache-2.0
// A batch of the plan becomes a collective.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "engine/engine.h"
#include "paths/kernels/kernels.h"
#include "util/clock.h"

namespace hvd {
namespace {

int64_t product(const std::vector<int64_t>& shape, size_t from) {
  int64_t n = 1;
  for (size_t i = from; i < shape.size(); ++i) n *= shape[i];
  return n;
}

size_t bytes_of(const Description& d) { return static_cast<size_t>(d.elements()) * kernels::item_size(d.dtype); }

size_t row_bytes(const Description& d) {
  return static_cast<size_t>(product(d.shape, 1)) * kernels::item_size(d.dtype);
}

Reduction reduction_of(const Description& d, size_t members) {
  bool average = d.reduce_op == HVD_AVERAGE;
  return {d.dtype, average ? HVD_SUM : d.reduce_op, d.prescale, d.postscale,
          average ? static_cast<int64_t>(members) : 1};
}

const Share& share_of(const Variant& value, int rank) {
  for (const Share& s : value.shares)
    if (s.rank == rank) return s;
  throw JobAborted("the plan lacks the size that rank " + std::to_string(rank) + " sent");
}

}  // namespace

// This rank's entries for the tensors of a batch; nullptr where it has joined and sends zeros. *values[i] describes
// tensor i, with the shares of all members where they vary.
std::vector<Entry*> Engine::match(const Batch& batch, std::vector<Variant>* values) {
  std::vector<Entry*> entries;
  for (const PlannedTensor& t : batch.tensors) {
    Key key;
    if (t.full) {
      key = {t.value.description.process_set, t.value.description.name};
    } else {
      auto it = key_of_id_.find(t.id);
      if (it == key_of_id_.end()) throw JobAborted("the plan names an id this rank does not know");
      key = it->second;
    }
    Entry* entry = nullptr;
    {
      std::lock_guard<std::mutex> lock(table_mutex_);
      auto it = pending_.find(key);
      if (it != pending_.end()) entry = it->second;
    }
    if (entry && entry->sent_id) announced_.erase(entry->sent_id);
    entries.push_back(entry);
    if (t.full && t.id && entry && batch.error.empty()) {
      const Description& agreed = t.value.description;
      auto known = known_.find(key);
      if (known != known_.end()) key_of_id_.erase(known->second.id);
      known_[key] = {t.id, entry->description, entry->share,
                     agreed.varies_by_rank() ? t.value.shares : std::vector<Share>{}};
      key_of_id_[t.id] = key;
    }
    if (t.full) {
      values->push_back(t.value);
    } else {
      const Known& known = known_.at(key);
      values->push_back({known.description, known.shares});
    }
  }
  return entries;
}

void Engine::execute(const Batch& batch) {
  if (batch.kind == HVD_JOIN) {
    Entry* entry = nullptr;
    {
      std::lock_guard<std::mutex> lock(table_mutex_);
      for (auto& [key, e] : pending_)
        if (e->description.kind == HVD_JOIN) entry = e;
    }
    if (entry) {
      entry->value = batch.joined_last;
      complete(entry, {});
    }
    return;
  }
  auto comm = comms_.find(batch.process_set);
  if (comm == comms_.end() || !comm->second->layout.included()) return;
  std::vector<Variant> values;
  std::vector<Entry*> entries = match(batch, &values);
  if (!batch.error.empty()) {
    ++metrics_.errors;
    for (Entry* entry : entries)
      if (entry) complete(entry, {batch.error_code, batch.error});
    return;
  }

  const Description& first = values.front().description;
  if (!comm->second->ready())
    throw JobAborted("process set " + std::to_string(batch.process_set) + " was used before its links were attached");
  RankState& me = segment_->rank(topology.local_rank());
  std::snprintf(me.last, sizeof me.last, "in %s of '%.120s'%s", first.kind_text(), first.name.c_str(),
                entries.size() > 1 ? " and others" : "");
  double start = now_s();
  {
    std::lock_guard<std::mutex> lock(park_mutex_);
    executing_name_ = first.name;
  }
  executing_since_ = start;
  bool traced = timeline_.active();
  if (traced)
    for (const Variant& v : values) timeline_.begin(v.description.name, v.description.kind_text());

  switch (batch.kind) {
    case HVD_ALLREDUCE: run_allreduce(batch, entries, values); break;
    case HVD_REDUCESCATTER: run_reducescatter(batch, entries); break;
    case HVD_ALLGATHER: run_allgather(batch, entries, values); break;
    case HVD_BROADCAST: run_broadcast(batch, entries[0]); break;
    case HVD_ALLTOALL: run_alltoall(batch, entries[0], values[0]); break;
    case HVD_BARRIER: break;  // everybody has arrived: that is all it means
    default: change_process_sets(batch); break;
  }

  executing_since_ = 0;
  std::snprintf(me.last, sizeof me.last, "after %s of '%.120s'", first.kind_text(), first.name.c_str());
  ++metrics_.batches;
  metrics_.tensors += static_cast<int64_t>(entries.size());
  if (entries.size() > 1) metrics_.fused_tensors += static_cast<int64_t>(entries.size());
  metrics_.execute_us += static_cast<int64_t>((now_s() - start) * 1e6);
  if (traced)
    for (size_t i = 0; i < values.size(); ++i) {
      const Description& d = values[i].description;
      timeline_.end(d.name, dtype_name(d.dtype), shape_text(entries[i] ? entries[i]->output_shape : d.shape));
    }
  for (Entry* entry : entries)
    if (entry) complete(entry, {});
}

char* Engine::make_output(Entry* entry, std::vector<int64_t> shape) {
  entry->output_shape = std::move(shape);
  if (entry->output) return entry->output;
  size_t bytes = static_cast<size_t>(product(entry->output_shape, 0)) * kernels::item_size(entry->description.dtype);
  Submission& owner = *entry->owner;
  if (owner.alloc) {
    entry->output = static_cast<char*>(owner.alloc(owner.context, entry->index, entry->output_shape.data(),
                                                   static_cast<int32_t>(entry->output_shape.size())));
    if (entry->output || bytes == 0) return entry->output;
    // The other ranks count on this one: take part with memory of our own, and fail afterwards.
    owner.status = {HVD_UNKNOWN, "no memory for the output of " + entry->description.name + " (" +
                                     std::to_string(bytes) + " bytes)"};
  }
  void* memory = nullptr;
  if (posix_memalign(&memory, 64, std::max<size_t>(bytes, 64)) != 0)
    throw JobAborted("out of memory: " + std::to_string(bytes) + " bytes for the output of " + entry->description.name);
  entry->owned = memory;
  entry->output = static_cast<char*>(memory);
  return entry->output;
}

void Engine::run_allreduce(const Batch& batch, const std::vector<Entry*>& entries, const std::vector<Variant>& values) {
  Comm& comm = *comms_.at(batch.process_set);
  const Description& first = values[0].description;
  Stream stream;
  for (size_t i = 0; i < entries.size(); ++i) {
    Entry* entry = entries[i];
    char* out = entry ? make_output(entry, entry->shape) : nullptr;
    stream.add(entry ? entry->input : nullptr, out, bytes_of(values[i].description));
  }
  metrics_.bytes += static_cast<int64_t>(stream.bytes());
  bool adasum = first.reduce_op == HVD_ADASUM;
  comm.begin(batch.seq, !adasum && stream.bytes() <= kLightBytes);
  Reduction how = reduction_of(first, comm.layout.members.size());
  if (adasum) comm.adasum(stream, how);
  else comm.reduce(stream, how);
  comm.end();
}

void Engine::run_reducescatter(const Batch& batch, const std::vector<Entry*>& entries) {
  Comm& comm = *comms_.at(batch.process_set);
  auto members = static_cast<int64_t>(comm.layout.members.size());
  Stream stream;
  for (Entry* entry : entries) {
    const Description& d = entry->description;
    size_t row = row_bytes(d);
    int64_t rows = d.shape[0];
    int64_t base = rows / members;
    int64_t extra = rows % members;
    int64_t me = comm.layout.my_index;
    auto start = static_cast<size_t>(me * base + std::min(me, extra)) * row;
    auto count = static_cast<size_t>(base + (me < extra ? 1 : 0));
    std::vector<int64_t> shape = d.shape;
    shape[0] = static_cast<int64_t>(count);
    char* out = make_output(entry, shape);
    size_t total = static_cast<size_t>(rows) * row;
    stream.add(entry->input, nullptr, start);
    stream.add(entry->input + start, out, count * row);
    stream.add(entry->input + start + count * row, nullptr, total - start - count * row);
  }
  metrics_.bytes += static_cast<int64_t>(stream.bytes());
  comm.begin(batch.seq, stream.bytes() <= kLightBytes);
  comm.reduce(stream, reduction_of(entries[0]->description, comm.layout.members.size()));
  comm.end();
}

void Engine::run_allgather(const Batch& batch, const std::vector<Entry*>& entries, const std::vector<Variant>& values) {
  Comm& comm = *comms_.at(batch.process_set);
  const std::vector<int>& members = comm.layout.members;
  Stream mine;
  std::vector<size_t> blocks(members.size(), 0);
  std::vector<Stream> sinks(members.size());
  for (size_t t = 0; t < entries.size(); ++t) {
    Entry* entry = entries[t];
    size_t row = row_bytes(entry->description);
    std::vector<size_t> sizes;
    int64_t rows = 0;
    for (int rank : members) {
      int64_t dim0 = share_of(values[t], rank).dim0;
      sizes.push_back(static_cast<size_t>(dim0) * row);
      rows += dim0;
    }
    std::vector<int64_t> shape = entry->shape;
    shape[0] = rows;
    char* out = make_output(entry, shape);
    mine.add(entry->input, nullptr, sizes[comm.layout.my_index]);
    for (size_t i = 0; i < members.size(); ++i) {
      sinks[i].add(nullptr, out, sizes[i]);
      blocks[i] += sizes[i];
      out += sizes[i];
    }
  }
  metrics_.bytes += static_cast<int64_t>(mine.bytes());
  comm.begin(batch.seq, false);
  comm.allgather(mine, blocks, sinks);
  comm.end();
}

void Engine::run_broadcast(const Batch& batch, Entry* entry) {
  Comm& comm = *comms_.at(batch.process_set);
  const std::vector<int>& members = comm.layout.members;
  size_t bytes = bytes_of(entry->description);
  auto root = std::lower_bound(members.begin(), members.end(), entry->description.root) - members.begin();
  char* out = make_output(entry, entry->shape);
  metrics_.bytes += static_cast<int64_t>(bytes);
  comm.begin(batch.seq, false);
  comm.broadcast(entry->input, out, bytes, static_cast<int>(root));
  comm.end();
}

void Engine::run_alltoall(const Batch& batch, Entry* entry, const Variant& value) {
  Comm& comm = *comms_.at(batch.process_set);
  const std::vector<int>& members = comm.layout.members;
  size_t n = members.size();
  auto me = static_cast<size_t>(comm.layout.my_index);
  size_t row = row_bytes(entry->description);
  std::vector<size_t> bytes(n * n);
  for (size_t s = 0; s < n; ++s) {
    const Share& share = share_of(value, members[s]);
    if (share.splits.size() != n) throw JobAborted("the plan holds splits of the wrong length");
    for (size_t d = 0; d < n; ++d) bytes[s * n + d] = static_cast<size_t>(share.splits[d]) * row;
    entry->received_splits.push_back(share.splits[me]);
  }
  std::vector<int64_t> shape = entry->shape;
  shape[0] = 0;
  for (int64_t rows : entry->received_splits) shape[0] += rows;
  char* out = make_output(entry, shape);
  std::vector<const char*> send(n);
  std::vector<char*> recv(n);
  const char* in = entry->input;
  for (size_t i = 0; i < n; ++i) {
    send[i] = in;
    in += bytes[me * n + i];
    recv[i] = out;
    out += bytes[i * n + me];
  }
  metrics_.bytes += in - entry->input;
  comm.begin(batch.seq, false);
  comm.alltoall(bytes, send, recv);
  comm.end();
}

void Engine::change_process_sets(const Batch& batch) {
  const Description& d = batch.tensors.front().value.description;
  if (batch.kind == kAddProcessSet) {
    auto comm = std::make_unique<Comm>(topology, *lane_, SetLayout(topology, {d.shape.begin(), d.shape.end()}));
    std::lock_guard<std::mutex> lock(table_mutex_);
    comms_[batch.new_process_set] = std::move(comm);
    auto it = pending_.find({d.process_set, d.name});
    if (it != pending_.end()) it->second->value = batch.new_process_set;
    return;
  }
  std::vector<Entry*> failed;
  std::unique_ptr<Comm> removed;
  {
    std::lock_guard<std::mutex> lock(table_mutex_);
    for (auto& [key, entry] : pending_)
      if (key.first == d.root) failed.push_back(entry);
    auto it = comms_.find(d.root);
    removed = std::move(it->second);
    comms_.erase(it);
  }
  for (Entry* entry : failed)
    complete(entry,
             {HVD_INVALID, "The process set of " + entry->description.name + " was removed while it was waiting."});
  for (auto it = known_.begin(); it != known_.end();) {
    if (it->first.first == d.root) {
      key_of_id_.erase(it->second.id);
      it = known_.erase(it);
    } else {
      ++it;
    }
  }
}

void Engine::complete(Entry* entry, const Status& status) {
  Submission* submission = entry->owner;
  std::shared_ptr<Submission> alive;
  if (entry->sent_id) {
    auto it = announced_.find(entry->sent_id);
    if (it != announced_.end() && it->second == entry) announced_.erase(it);
  }
  {
    std::lock_guard<std::mutex> lock(table_mutex_);
    auto it = pending_.find({entry->description.process_set, entry->description.name});
    if (it == pending_.end() || it->second != entry) return;  // completed already
    pending_.erase(it);
    if (!status.ok() && submission->status.ok()) submission->status = status;
    if (--submission->remaining > 0) return;
    alive = handles_.at(submission->handle);
  }
  alive->done.store(true, std::memory_order_release);
  if (alive->done_callback)
    alive->done_callback(alive->context, alive->handle, alive->status.code, alive->status.text.c_str());
  std::lock_guard<std::mutex> lock(table_mutex_);
  if (alive->flags & HVD_AUTO_RELEASE) handles_.erase(alive->handle);
  if (waiters_) completed_.notify_all();
}

}  // namespace hvd
