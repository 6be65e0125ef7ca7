// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/verbs.h"

#include <algorithm>

#include "horovod/core.h"
#include "paths/cuda/fuse.h"
#include "paths/cuda/ready.h"
#include "util/dtype.h"

namespace hvd::cuda {
namespace {

constexpr char kFusionAdvice[] = "Lower HOROVOD_FUSION_THRESHOLD, or leave the engine more memory.";

const Scaling kUnscaled = scaling_for(HVD_FLOAT32, 1.0, 1);

size_t row_bytes(const Description& d) {
  size_t bytes = item_size(d.dtype);
  for (size_t i = 1; i < d.shape.size(); ++i) bytes *= static_cast<size_t>(d.shape[i]);
  return bytes;
}

const Share& share_of(const Variant& value, int rank) {
  for (const Share& s : value.shares)
    if (s.rank == rank) return s;
  throw JobAborted("the plan lacks the size that rank " + std::to_string(rank) + " sent");
}

bool aligned(const void* p) { return (reinterpret_cast<uintptr_t>(p) & 15) == 0; }

// How a reduction's elements travel, and what happens to them before, during and after.
struct Travel {
  int dtype;
  int wire;
  size_t item;     // bytes on the wire
  Scaling before;  // while packing
  Reduce reduce;   // with the scaling of floating-point results
  Scaling after;   // of integers, while unpacking

  Travel(const Description& d, const Group& group)
      : dtype(d.dtype),
        wire(d.wire ? d.wire : group.travels_as(d.dtype)),
        item(item_size(wire)),
        before(scaling_for(d.dtype, d.prescale, 1)),
        after(scaling_for(d.dtype, d.postscale, d.reduce_op == HVD_AVERAGE ? group.n : 1)) {
    reduce = {wire, d.reduce_op == HVD_AVERAGE || d.reduce_op == HVD_ADASUM ? HVD_SUM : d.reduce_op, kUnscaled};
    if (is_floating(wire)) std::swap(reduce.after, after);
  }
  bool must_pack() const { return wire != dtype || any(before); }
};

}  // namespace

Workspace::Workspace(const std::shared_ptr<Device>& device)
    : fused(device, "the fusion buffer", kFusionAdvice), vectors(device, "Adasum", kFusionAdvice) {}

void Verbs::run(PlannedBatch& batch) {
  InContext in(*tools_.device);
  tools_.order.follow(stream_);
  await_inputs(batch);
  if (marks_) marks_->begin(stream_);
  switch (batch.kind) {
    case HVD_ALLREDUCE:
      if (batch.agreed[0]->description.reduce_op == HVD_ADASUM && group_.n > 1) adasum(batch);
      else allreduce(batch);
      break;
    case HVD_REDUCESCATTER: reducescatter(batch); break;
    case HVD_ALLGATHER: allgather(batch); break;
    case HVD_BROADCAST: broadcast(batch); break;
    case HVD_ALLTOALL: alltoall(batch); break;
    default: break;
  }
  std::shared_ptr<DevicePoint> done = tools_.device->record(stream_);
  for (Tensor* tensor : batch.tensors)
    if (tensor) {
      tensor->result = done;
      tensor->in_stream = tensor->stream == stream_;
    }
  tools_.order.done(stream_, std::move(done));
}

void Verbs::passed(const char* part) {
  if (marks_) marks_->passed(part, stream_);
}

void Verbs::pack(int from, int to, const Scaling& scaling, const std::vector<Segment>& segments) {
  if (segments.empty()) return;
  tools_.converter.run(from, to, scaling, segments, stream_);
  passed("PACK");
}

void Verbs::unpack(int from, int to, const Scaling& scaling, const std::vector<Segment>& segments) {
  passed(group_.name());
  if (segments.empty()) return;
  tools_.converter.run(from, to, scaling, segments, stream_);
  passed("UNPACK");
}

void Verbs::await_inputs(const PlannedBatch& batch) {
  const DevicePoint* last = nullptr;
  for (const Tensor* tensor : batch.tensors) {
    if (!tensor) continue;
    if (tensor->ready_event) {
      HVD_CUDA(stream_wait_event, stream_, static_cast<RawEvent>(tensor->ready_event), 0);
    } else if (tensor->ready.get() != last) {
      last = tensor->ready.get();
      last->precede(stream_);
      if (marks_) marks_->input(static_cast<const ReadyPoint*>(last)->event());
    }
  }
}

char* Verbs::place_output(Tensor& tensor, std::vector<int64_t> shape) {
  tensor.output_shape = std::move(shape);
  if (tensor.output) return tensor.output;
  size_t bytes = item_size(tensor.description.dtype);
  for (int64_t n : tensor.output_shape) bytes *= static_cast<size_t>(n);
  if (tensor.alloc) {
    const auto ndim = static_cast<int32_t>(tensor.output_shape.size());
    tensor.output =
        static_cast<char*>(tensor.alloc(tensor.alloc_context, tensor.index, tensor.output_shape.data(), ndim));
    if (tensor.output || !bytes) return tensor.output;
    // The other ranks count on this one: take part with memory of our own, and fail afterwards.
    tensor.problem = {HVD_UNKNOWN, "no memory for the output of " + tensor.description.name + " (" +
                                       std::to_string(bytes) + " bytes)"};
  }
  auto block = tools_.outputs->take(bytes, stream_);
  tensor.output = pointer_to(block->address);
  tensor.on_device = std::move(block);
  return tensor.output;
}

// Large tensors are reduced where they lie, small ones together in a buffer.
void Verbs::allreduce(const PlannedBatch& batch) {
  Travel travel(batch.agreed[0]->description, group_);
  size_t tensors = batch.tensors.size();
  std::vector<size_t> counts(tensors);
  std::vector<size_t> bytes(tensors);
  for (size_t i = 0; i < tensors; ++i) {
    counts[i] = static_cast<size_t>(batch.agreed[i]->description.elements());
    bytes[i] = counts[i] * travel.item;
    if (Tensor* t = batch.tensors[i]) place_output(*t, t->shape);
  }
  FusionPlan plan = plan_fusion(bytes, travel.must_pack());
  // What this rank cannot hand over as it is (it has joined, or it lies askew) goes through the buffer as well.
  auto fits = [&](size_t i) {
    const Tensor* t = batch.tensors[i];
    return t && aligned(t->input) && aligned(t->output);
  };
  size_t room = plan.bytes;
  for (size_t i : plan.alone)
    if (!fits(i)) room += round_up(bytes[i], 16);
  char* buffer = space_.fused.reserve(room);

  std::vector<Segment> in;
  std::vector<Segment> out;
  std::vector<Item> items;
  auto lodge = [&](size_t i, size_t offset) {
    const Tensor* t = batch.tensors[i];
    in.push_back({t ? t->input : nullptr, buffer + offset, counts[i]});
    if (t) out.push_back({buffer + offset, t->output, counts[i]});
  };
  for (const Packed& p : plan.packed) lodge(p.tensor, p.offset);
  if (plan.bytes) items.push_back({buffer, buffer, plan.bytes / travel.item});
  size_t offset = plan.bytes;
  for (size_t i : plan.alone) {
    if (fits(i)) {
      items.push_back({batch.tensors[i]->input, batch.tensors[i]->output, counts[i]});
      if (any(travel.after)) out.push_back({batch.tensors[i]->output, batch.tensors[i]->output, counts[i]});
    } else {
      lodge(i, offset);
      items.push_back({buffer + offset, buffer + offset, counts[i]});
      offset += round_up(bytes[i], 16);
    }
  }

  pack(travel.dtype, travel.wire, travel.before, in);
  group_.begin();
  for (const Item& item : items) group_.all_reduce(travel.reduce, item.in, item.out, item.count, stream_);
  group_.end();
  unpack(travel.wire, travel.dtype, travel.after, out);
}

void Verbs::reducescatter(const PlannedBatch& batch) {
  Travel travel(batch.agreed[0]->description, group_);
  auto n = static_cast<size_t>(group_.n);
  auto me = static_cast<size_t>(group_.me);
  std::vector<size_t> begins(n, 0);  // of the members' shares, in elements
  std::vector<size_t> counts(n, 0);
  struct Cut {
    Tensor* tensor;
    size_t row;  // elements
    size_t rows;
  };
  std::vector<Cut> cuts;
  for (Tensor* tensor : batch.tensors) {
    const Description& d = tensor->description;
    Cut cut{tensor, row_bytes(d) / item_size(d.dtype), static_cast<size_t>(d.shape[0])};
    std::vector<int64_t> shape = d.shape;
    shape[0] = static_cast<int64_t>(rows_of(cut.rows, me, n).count);
    place_output(*tensor, shape);
    cuts.push_back(cut);
  }

  // One tensor whose shares begin where they may is scattered from where it lies.
  if (cuts.size() == 1 && !travel.must_pack() && !any(travel.after)) {
    const Cut& cut = cuts[0];
    bool fits = true;
    for (size_t i = 0; i < n; ++i) {
      Rows rows = rows_of(cut.rows, i, n);
      begins[i] = rows.first * cut.row;
      counts[i] = rows.count * cut.row;
      fits &= begins[i] * travel.item % 16 == 0;
    }
    if (fits) {
      size_t all = cut.rows * cut.row;
      const void* in = cut.tensor->input;
      void* out = cut.tensor->output;
      char* buffer = nullptr;
      if (!aligned(in) || !aligned(out)) {  // this rank alone
        buffer = space_.fused.reserve(round_up(all * travel.item, 16) + counts[me] * travel.item);
        pack(travel.dtype, travel.wire, kUnscaled, {{in, buffer, all}});
        in = buffer;
        out = buffer + round_up(all * travel.item, 16);
      }
      group_.reduce_scatter(travel.reduce, in, out, begins, counts, stream_);
      std::vector<Segment> back;
      if (buffer) back.push_back({out, cut.tensor->output, counts[me]});
      unpack(travel.wire, travel.dtype, kUnscaled, back);
      return;
    }
  }

  size_t vector = 16 / travel.item;
  for (size_t i = 0; i < n; ++i) {
    begins[i] = i ? begins[i - 1] + counts[i - 1] : 0;
    counts[i] = 0;
    for (const Cut& cut : cuts) counts[i] += round_up(rows_of(cut.rows, i, n).count * cut.row, vector);
  }
  size_t all = begins[n - 1] + counts[n - 1];
  char* buffer = space_.fused.reserve((all + counts[me]) * travel.item);
  char* result = buffer + all * travel.item;
  std::vector<Segment> in;
  std::vector<Segment> out;
  for (size_t i = 0; i < n; ++i) {
    size_t at = begins[i];
    for (const Cut& cut : cuts) {
      Rows rows = rows_of(cut.rows, i, n);
      size_t count = rows.count * cut.row;
      in.push_back(
          {cut.tensor->input + rows.first * cut.row * item_size(travel.dtype), buffer + at * travel.item, count});
      if (i == me) out.push_back({result + (at - begins[i]) * travel.item, cut.tensor->output, count});
      at += round_up(count, vector);
    }
  }
  pack(travel.dtype, travel.wire, travel.before, in);
  group_.reduce_scatter(travel.reduce, buffer, result, begins, counts, stream_);
  unpack(travel.wire, travel.dtype, travel.after, out);
}

void Verbs::allgather(const PlannedBatch& batch) {
  const std::vector<int>& members = batch.layout->members;
  size_t n = members.size();
  auto me = static_cast<size_t>(group_.me);
  size_t tensors = batch.tensors.size();
  std::vector<std::vector<size_t>> bytes(tensors, std::vector<size_t>(n));  // of member i's rows
  std::vector<size_t> totals(tensors, 0);
  for (size_t t = 0; t < tensors; ++t) {
    Tensor& tensor = *batch.tensors[t];
    size_t row = row_bytes(tensor.description);
    std::vector<int64_t> shape = tensor.shape;
    shape[0] = 0;
    for (size_t i = 0; i < n; ++i) {
      int64_t rows = share_of(*batch.agreed[t], members[i]).dim0;
      shape[0] += rows;
      bytes[t][i] = static_cast<size_t>(rows) * row;
      totals[t] += bytes[t][i];
    }
    place_output(tensor, shape);
  }
  auto begins_of = [&](const std::vector<size_t>& sizes) {
    std::vector<size_t> begins(n, 0);
    for (size_t i = 1; i < n; ++i) begins[i] = begins[i - 1] + sizes[i - 1];
    return begins;
  };

  FusionPlan plan = plan_fusion(totals, false);
  std::vector<size_t> blocks(n, 0);
  for (const Packed& p : plan.packed)
    for (size_t i = 0; i < n; ++i) blocks[i] += round_up(bytes[p.tensor][i], 16);
  std::vector<size_t> places = begins_of(blocks);
  char* buffer = plan.packed.empty() ? nullptr : space_.fused.reserve(places[n - 1] + blocks[n - 1]);
  std::vector<Segment> in;
  std::vector<Segment> out;
  for (size_t i = 0; i < n; ++i) {
    char* at = buffer + places[i];
    for (const Packed& p : plan.packed) {
      size_t size = bytes[p.tensor][i];
      const Tensor& tensor = *batch.tensors[p.tensor];
      if (i == me) in.push_back({tensor.input, at, size});
      out.push_back({at, tensor.output + begins_of(bytes[p.tensor])[i], size});
      at += round_up(size, 16);
    }
  }
  pack(HVD_UINT8, HVD_UINT8, kUnscaled, in);
  group_.begin();
  if (buffer) group_.all_gather(buffer + places[me], buffer, places, blocks, stream_);
  for (size_t t : plan.alone)
    group_.all_gather(batch.tensors[t]->input, batch.tensors[t]->output, begins_of(bytes[t]), bytes[t], stream_);
  group_.end();
  unpack(HVD_UINT8, HVD_UINT8, kUnscaled, out);
}

void Verbs::broadcast(const PlannedBatch& batch) {
  Tensor& tensor = *batch.tensors[0];
  const std::vector<int>& members = batch.layout->members;
  auto root = std::lower_bound(members.begin(), members.end(), tensor.description.root) - members.begin();
  char* out = place_output(tensor, tensor.shape);
  group_.broadcast(tensor.input, out, tensor.bytes, static_cast<int>(root), stream_);
  passed(group_.name());
}

void Verbs::alltoall(const PlannedBatch& batch) {
  Tensor& tensor = *batch.tensors[0];
  const std::vector<int>& members = batch.layout->members;
  size_t n = members.size();
  auto me = static_cast<size_t>(group_.me);
  size_t row = row_bytes(tensor.description);
  std::vector<size_t> bytes(n * n);
  std::vector<int64_t> shape = tensor.shape;
  shape[0] = 0;
  for (size_t s = 0; s < n; ++s) {
    const Share& share = share_of(*batch.agreed[0], members[s]);
    if (share.splits.size() != n) throw JobAborted("the plan holds splits of the wrong length");
    for (size_t d = 0; d < n; ++d) bytes[s * n + d] = static_cast<size_t>(share.splits[d]) * row;
    tensor.received_splits.push_back(share.splits[me]);
    shape[0] += share.splits[me];
  }
  char* out = place_output(tensor, shape);
  group_.all_to_all(tensor.input, out, bytes, stream_);
  passed(group_.name());
}

}  // namespace hvd::cuda
