// SPDX-License-Identifier: Apache-2.0
// What may be submitted: checks that need no other rank, with the documented texts.
#include <algorithm>
#include <cstring>

#include "engine/engine.h"
#include "paths/kernels/kernels.h"
#include "util/clock.h"

namespace hvd {
namespace {

std::string title(int kind) {
  std::string text = kind_name(kind);
  for (size_t i = 1; i < text.size(); ++i) text[i] = static_cast<char>(text[i] - 'A' + 'a');
  return text;
}

[[noreturn]] void invalid(const std::string& text) { throw Refused(HVD_INVALID, text); }

bool is_float(int dtype) {
  return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16 || dtype == HVD_FLOAT32 || dtype == HVD_FLOAT64;
}

// The same list of names gives the same group on all ranks (FNV-1a, never 0).
uint64_t group_key(const hvd_request* requests, int32_t n) {
  uint64_t hash = 1469598103934665603ull;
  for (int32_t i = 0; i < n; ++i)
    for (const char* c = requests[i].name;; ++c) {
      hash = (hash ^ static_cast<unsigned char>(*c)) * 1099511628211ull;
      if (!*c) break;
    }
  return hash ? hash : 1;
}

}  // namespace

const char kShutdownText[] =
    "Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to allreduce, "
    "allgather or broadcast a tensor after one of the ranks finished execution. If the shutdown was caused by an "
    "exception, you should see the exception in the log before the first shutdown message.";
const char kNotInitialisedText[] = "Horovod has not been initialized; use hvd.init().";

const Comm& Engine::member_comm(const hvd_request& request) {
  std::lock_guard<std::mutex> lock(table_mutex_);
  auto it = comms_.find(request.process_set);
  bool scatter = request.kind == HVD_REDUCESCATTER;
  std::string wrong_set = "Invalid process set id for this rank: " + std::to_string(request.process_set);
  if (it == comms_.end())
    invalid(scatter ? wrong_set
                    : title(request.kind) + ": Process set provided does not exist, or has not been registered.");
  if (!it->second->layout.included())
    invalid(scatter ? wrong_set
                    : title(request.kind) + ": Rank " + std::to_string(topology.rank) +
                          " is not a member of the provided process set.");
  return *it->second;
}

void Engine::check_splits(const hvd_request& request, Entry* entry, int members) {
  if (request.ndim == 0) {
    entry->share.splits.assign(members, 0);  // refused by the coordinator, on all ranks
    return;
  }
  int64_t rows = request.shape[0];
  if (request.n_splits == 0) {
    if (rows % members != 0)
      invalid("splits not provided, but first dimension of tensor is not an even multiple of the number of workers.");
    entry->share.splits.assign(members, rows / members);
    return;
  }
  if (request.n_splits != members) invalid("Number of entries in splits does not equal number of workers.");
  entry->share.splits.assign(request.splits, request.splits + members);
  int64_t sum = 0;
  for (int64_t split : entry->share.splits) {
    if (split < 0) invalid("alltoall expects splits that are not negative.");
    sum += split;
  }
  if (sum > rows) invalid("Sum of splits entries is greater than the first dimension of tensor.");
}

void Engine::fill_entry(const hvd_request& request, Entry* entry) {
  if (request.struct_size != sizeof(hvd_request)) invalid("hvd_request of another version of the header");
  if (request.kind < HVD_ALLREDUCE || request.kind > HVD_REDUCESCATTER) invalid("unknown kind of operation");
  if (!request.name || !*request.name) invalid("a tensor needs a name");
  const Comm& comm = member_comm(request);
  int members = static_cast<int>(comm.layout.members.size());

  Description& d = entry->description;
  d.name = request.name;
  d.process_set = request.process_set;
  d.kind = request.kind;
  entry->share.rank = topology.rank;
  if (request.kind == HVD_JOIN || request.kind == HVD_BARRIER) return;

  if (!kernels::item_size(request.dtype)) invalid("unknown data type " + std::to_string(request.dtype));
  if (request.device >= 0) invalid("device memory is not supported by this transport; pass host memory");
  d.dtype = request.dtype;
  entry->shape.assign(request.shape, request.shape + request.ndim);
  for (int64_t n : entry->shape)
    if (n < 0) invalid("negative dimension in the shape of " + d.name);
  d.shape = entry->shape;
  entry->input = static_cast<const char*>(request.input);
  entry->output = static_cast<char*>(request.output);

  switch (request.kind) {
    case HVD_ALLREDUCE:
    case HVD_REDUCESCATTER:
      if (request.reduce_op < HVD_AVERAGE || request.reduce_op > HVD_PRODUCT) invalid("unknown reduction op");
      if (request.kind == HVD_REDUCESCATTER && request.reduce_op > HVD_SUM)
        throw Refused(HVD_ABORTED, "Reducescatter currently only supports AVERAGE and SUM.");
      if (request.reduce_op == HVD_ADASUM && !is_float(request.dtype))
        invalid("Adasum needs a floating-point tensor, " + d.name + " is " + dtype_name(request.dtype) + ".");
      if (request.reduce_op == HVD_AVERAGE && request.dtype == HVD_BOOL)
        invalid("The average of bool values is not defined (tensor " + d.name +
                "); use Max or Sum for \"any\", Min or Product for \"all\".");
      d.reduce_op = request.reduce_op;
      d.prescale = request.prescale;
      d.postscale = request.postscale;
      break;
    case HVD_BROADCAST:
      d.root = request.root;
      if (!std::binary_search(comm.layout.members.begin(), comm.layout.members.end(), request.root))
        invalid("broadcast received invalid root rank " + std::to_string(request.root) + " for provided process set");
      break;
    case HVD_ALLTOALL: check_splits(request, entry, members); [[fallthrough]];
    case HVD_ALLGATHER:
      if (!entry->shape.empty()) {
        entry->share.dim0 = entry->shape[0];
        d.shape[0] = 0;
      }
      break;
    default: break;
  }
}

int64_t Engine::submit(const hvd_request* requests, int32_t n, uint32_t flags, hvd_alloc_fn alloc, hvd_done_fn done,
                       void* context) {
  if (n < 1) invalid("nothing to submit");
  auto submission = std::make_shared<Submission>();
  submission->entries.resize(n);
  submission->flags = flags;
  submission->alloc = alloc;
  submission->done_callback = done;
  submission->context = context;
  uint64_t group = n > 1 || (flags & HVD_GROUP) ? group_key(requests, n) : 0;
  for (int32_t i = 0; i < n; ++i) {
    Entry& entry = submission->entries[i];
    fill_entry(requests[i], &entry);
    if (group) {
      entry.description.group = group;
      entry.description.group_size = n;
    }
  }
  return enqueue(std::move(submission));
}

int64_t Engine::submit_internal(int kind, const std::string& name, std::vector<int64_t> shape, int32_t root) {
  auto submission = std::make_shared<Submission>();
  submission->entries.resize(1);
  Entry& entry = submission->entries[0];
  entry.description.name = name;
  entry.description.kind = kind;
  entry.description.shape = std::move(shape);
  entry.description.root = root;
  entry.share.rank = topology.rank;
  return enqueue(std::move(submission));
}

int64_t Engine::enqueue(std::shared_ptr<Submission> submission) {
  double now = now_s();
  int64_t handle;
  {
    std::lock_guard<std::mutex> lock(table_mutex_);
    if (!ended_.ok()) throw Refused(ended_.code, ended_.text);
    for (size_t i = 0; i < submission->entries.size(); ++i) {
      Entry& entry = submission->entries[i];
      auto [it, added] = pending_.try_emplace({entry.description.process_set, entry.description.name}, &entry);
      if (!added) {
        for (size_t k = 0; k < i; ++k)
          pending_.erase({submission->entries[k].description.process_set, submission->entries[k].description.name});
        invalid(
            "Requested to allreduce, allgather, or broadcast a tensor with the same name as another tensor that is "
            "currently being processed.  If you want to request another tensor, use a different tensor name. "
            "(Tensor: " +
            entry.description.name + ", " + topology.describe(topology.rank) + ")");
      }
      entry.owner = submission.get();
      entry.index = static_cast<int32_t>(i);
      entry.since = now;
    }
    submission->remaining = static_cast<int32_t>(submission->entries.size());
    submission->handle = handle = next_handle_++;
    for (Entry& entry : submission->entries) queue_.push_back(&entry);
    metrics_.submitted += static_cast<int64_t>(submission->entries.size());
    bool waits = submission->flags & HVD_WILL_WAIT;
    handles_[handle] = std::move(submission);
    if (waits) return handle;
  }
  ring_own_bell();
  if (parked_ != kNotParked && user_drivers_ == 0) wake_background();
  return handle;
}

}  // namespace hvd
