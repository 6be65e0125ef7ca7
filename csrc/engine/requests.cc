// SPDX-License-Identifier: Apache-2.0
#include "engine/requests.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "util/dtype.h"

namespace hvd {
namespace {

constexpr int32_t kMaxDimensions = 256;
constexpr size_t kMaxName = 1 << 16;

std::string title(int kind) {
  std::string text = kind_name(kind);
  for (size_t i = 1; i < text.size(); ++i) text[i] = static_cast<char>(text[i] - 'A' + 'a');
  return text;
}

[[noreturn]] void invalid(const std::string& text) { throw Refused(HVD_INVALID, text); }

void check_membership(const hvd_request& request, const Topology& topology, const SetLayout* layout) {
  if (layout && layout->included()) return;
  if (request.kind == HVD_REDUCESCATTER)
    invalid("Invalid process set id for this rank: " + std::to_string(request.process_set));
  if (!layout) invalid(title(request.kind) + ": Process set provided does not exist, or has not been registered.");
  invalid(title(request.kind) + ": Rank " + std::to_string(topology.rank) +
          " is not a member of the provided process set.");
}

// Bytes of the input. Dimensions of zero count as one for the limit: other ranks may have rows of that length.
size_t checked_bytes(const Tensor& tensor) {
  const std::string& name = tensor.description.name;
  auto item = static_cast<int64_t>(item_size(tensor.description.dtype));
  int64_t most = item;
  bool empty = false;
  for (int64_t n : tensor.shape) {
    if (n < 0) invalid("negative dimension in the shape of " + name + ": " + shape_text(tensor.shape));
    empty |= n == 0;
    if (__builtin_mul_overflow(most, std::max<int64_t>(n, 1), &most) || most > kMaxBytes)
      invalid("the shape of " + name + " is larger than any memory: " + shape_text(tensor.shape));
  }
  return empty ? 0 : static_cast<size_t>(most);
}

void fill_splits(const hvd_request& request, int members, Tensor* tensor) {
  std::vector<int64_t>& splits = tensor->share.splits;
  if (request.ndim == 0) {
    splits.assign(members, 0);  // refused by the coordinator, on all ranks
    return;
  }
  int64_t rows = tensor->shape[0];
  if (request.n_splits == 0) {
    if (rows % members != 0)
      invalid("splits not provided, but first dimension of tensor is not an even multiple of the number of workers.");
    splits.assign(members, rows / members);
    return;
  }
  if (request.n_splits != members || !request.splits)
    invalid("Number of entries in splits does not equal number of workers.");
  splits.assign(request.splits, request.splits + members);
  int64_t left = rows;
  for (int64_t split : splits) {
    if (split < 0) invalid("alltoall expects splits that are not negative.");
    if (split > left) invalid("Sum of splits entries is greater than the first dimension of tensor.");
    left -= split;
  }
}

void fill_reduction(const hvd_request& request, Description* d) {
  if (request.reduce_op < HVD_AVERAGE || request.reduce_op > HVD_PRODUCT)
    invalid("unknown reduction op " + std::to_string(request.reduce_op));
  if (request.kind == HVD_REDUCESCATTER && request.reduce_op > HVD_SUM)
    throw Refused(HVD_ABORTED, "Reducescatter currently only supports AVERAGE and SUM.");
  if (request.reduce_op == HVD_ADASUM && !is_floating(request.dtype))
    invalid("Adasum needs a floating-point tensor, " + d->name + " is " + dtype_name(request.dtype) + ".");
  if (request.reduce_op == HVD_AVERAGE && request.dtype == HVD_BOOL)
    invalid("The average of bool values is not defined (tensor " + d->name +
            "); use Max or Sum for \"any\", Min or Product for \"all\".");
  if (std::isnan(request.prescale) || std::isnan(request.postscale))
    invalid("the scale factors of " + d->name + " must be numbers");
  d->reduce_op = request.reduce_op;
  d->prescale = request.prescale;
  d->postscale = request.postscale;
}

}  // namespace

void check_request(const hvd_request& request) {
  if (request.struct_size != sizeof(hvd_request)) invalid("hvd_request of another version of the header");
  if (request.kind < HVD_ALLREDUCE || request.kind > HVD_REDUCESCATTER)
    invalid("unknown kind of operation " + std::to_string(request.kind));
  if (!request.name || !*request.name) invalid("a tensor needs a name");
  if (strnlen(request.name, kMaxName + 1) > kMaxName)
    invalid("a tensor's name may have up to " + std::to_string(kMaxName) + " bytes");
}

void fill_entry(const hvd_request& request, const Topology& topology, const SetLayout* layout, const Paths& paths,
                Entry* entry) {
  check_membership(request, topology, layout);
  Description& d = entry->description;
  d.name = request.name;
  d.process_set = request.process_set;
  d.kind = request.kind;
  entry->share.rank = topology.rank;
  if (request.kind == HVD_JOIN) entry->device = std::max(request.device, -1);  // where its zeros are made
  if (request.kind == HVD_JOIN || request.kind == HVD_BARRIER) return;

  if (!item_size(request.dtype)) invalid("unknown data type " + std::to_string(request.dtype));
  if (request.ndim < 0 || request.ndim > kMaxDimensions || (request.ndim > 0 && !request.shape))
    invalid("the shape of " + d.name + " has " + std::to_string(request.ndim) + " dimensions");
  if (request.device < -1) invalid("unknown device " + std::to_string(request.device));
  if (!paths.choose(request.device, *layout))
    invalid("device memory is not supported by this transport; pass host memory");
  d.dtype = request.dtype;
  d.device = request.device < 0 ? -1 : 0;  // ranks agree on the kind of memory; which device it is stays their own
  entry->device = entry->share.device = request.device < 0 ? -1 : request.device;
  entry->ready_event = request.ready_event;
  entry->stream = request.stream;
  if (request.wire_dtype) {
    if (request.kind != HVD_ALLREDUCE || request.reduce_op == HVD_ADASUM || request.device < 0 ||
        (request.wire_dtype != HVD_FLOAT16 && request.wire_dtype != HVD_BFLOAT16) ||
        (request.dtype != HVD_FLOAT32 && request.dtype != HVD_FLOAT64))
      invalid("only allreduce of float32 and float64 on a GPU travels as float16 or bfloat16; " + d.name + " is not");
    d.wire = request.wire_dtype;
  }
  entry->shape.assign(request.shape, request.shape + request.ndim);
  entry->bytes = checked_bytes(*entry);
  d.shape = entry->shape;
  entry->input = static_cast<const char*>(request.input);
  entry->output = static_cast<char*>(request.output);
  bool reads_input = request.kind != HVD_BROADCAST || request.root == topology.rank;
  if (reads_input && entry->bytes && !request.input) invalid(d.name + " has a shape but no memory");

  switch (request.kind) {
    case HVD_ALLREDUCE:
    case HVD_REDUCESCATTER: fill_reduction(request, &d); break;
    case HVD_BROADCAST:
      d.root = request.root;
      if (!std::binary_search(layout->members.begin(), layout->members.end(), request.root))
        invalid("broadcast received invalid root rank " + std::to_string(request.root) + " for provided process set");
      break;
    case HVD_ALLTOALL: fill_splits(request, layout->size(), entry); [[fallthrough]];
    case HVD_ALLGATHER:
      if (!entry->shape.empty()) {
        entry->share.dim0 = entry->shape[0];
        d.shape[0] = 0;
      }
      break;
    default: break;
  }
}

uint64_t group_key(const hvd_request* requests, int32_t n) {
  uint64_t hash = 1469598103934665603ull;  // FNV-1a
  for (int32_t i = 0; i < n; ++i)
    for (const char* c = requests[i].name;; ++c) {
      hash = (hash ^ static_cast<unsigned char>(*c)) * 1099511628211ull;
      if (!*c) break;
    }
  return hash ? hash : 1;
}

}  // namespace hvd
