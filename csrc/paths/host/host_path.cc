// SPDX-License-Identifier: Apache-2.0
// A planned batch becomes a collective over host memory: where each tensor's bytes come from and go to.
#include "paths/host/host_path.h"

#include <algorithm>
#include <cstring>

#include "util/dtype.h"

namespace hvd {
namespace {

size_t row_bytes(const Description& d) {
  size_t bytes = item_size(d.dtype);
  for (size_t i = 1; i < d.shape.size(); ++i) bytes *= static_cast<size_t>(d.shape[i]);
  return bytes;
}

Reduction reduction_of(const Description& d, int members) {
  bool average = d.reduce_op == HVD_AVERAGE;
  return {d.dtype, average ? HVD_SUM : d.reduce_op, d.prescale, d.postscale, average ? members : 1};
}

const Share& share_of(const Variant& value, int rank) {
  for (const Share& s : value.shares)
    if (s.rank == rank) return s;
  throw JobAborted("the plan lacks the size that rank " + std::to_string(rank) + " sent");
}

}  // namespace

HostPath::HostPath(const Topology& topology, Segment& segment, const LinkSecurity& security, Options options)
    : topology_(topology),
      segment_(segment),
      security_(security),
      options_(options),
      lane_(segment, topology.local_rank(), options.spin_us, options.roomy, topology.hosts() == 1) {
  if (options.over_mpi && topology.hosts() > 1 && security.seals_data())
    throw Refused(HVD_INVALID,
                  "HOROVOD_CPU_OPERATIONS=mpi hands the data to MPI, where HOROVOD_LINK_SECURITY=integrity or encrypt "
                  "cannot seal it: leave HOROVOD_CPU_OPERATIONS unset to use sockets, or set "
                  "HOROVOD_LINK_SECURITY=control and protect the network by other means");
}

bool HostPath::serves(int32_t device, const SetLayout& /*layout*/) const { return device < 0; }

void HostPath::add_set(int32_t id, const std::shared_ptr<const SetLayout>& layout) {
  if (size_t least = smallest_slot(*layout); segment_.slot_bytes() < least)
    throw Refused(HVD_INVALID, "HOROVOD_SHM_SLOT_BYTES is too small for " + std::to_string(layout->size()) +
                                   " ranks: it must be at least " + std::to_string(least));
  comms_[id] = std::make_unique<Comm>(topology_, lane_, layout);
  comms_[id]->tune(sizes_);
}

void HostPath::tune(const Settings& settings) {
  sizes_ = {static_cast<size_t>(settings.small_bytes), static_cast<size_t>(settings.shm_slot_bytes),
            static_cast<size_t>(settings.chunk_bytes)};
  for (auto& [id, comm] : comms_) comm->tune(sizes_);
}

void HostPath::remove_set(int32_t id) { comms_.erase(id); }

void HostPath::attach(std::vector<OpenLink> links) {
  auto check = [this] { lane_.check(); };
  for (auto& [id, comm] : comms_) {
    const SetLayout& layout = comm->layout;
    if (comm->ready() || !layout.included()) continue;
    if (options_.over_mpi) {
      std::vector<int> column;
      for (int h = 0; h < layout.hosts(); ++h) column.push_back(layout.column_rank(h));
      comm->attach(make_mpi_transport(id, column, layout.my_host, check));
      continue;
    }
    std::vector<DataLink> out(layout.hops());
    std::vector<DataLink> in(layout.hops());
    for (OpenLink& link : links) {
      bool data = link.what.kind == HVD_LINK_DATA_OUT || link.what.kind == HVD_LINK_DATA_IN;
      if (!data || link.what.process_set != id || link.what.hop < 0 || link.what.hop >= layout.hops()) continue;
      bool sends = link.what.kind == HVD_LINK_DATA_OUT;
      Seals seals = security_.seals_for(link.what);
      (sends ? out : in)[link.what.hop] = {std::move(link.fd), std::move(sends ? seals.out : seals.in),
                                           topology_.describe(link.what.peer)};
    }
    auto there = [](const DataLink& link) { return static_cast<bool>(link.fd); };
    if (std::all_of(out.begin(), out.end(), there) && std::all_of(in.begin(), in.end(), there))
      comm->attach(make_tcp_transport(std::move(out), std::move(in), check));
  }
}

Comm& HostPath::comm_of(const PlannedBatch& batch) {
  Comm& comm = *comms_.at(batch.process_set);
  if (!comm.ready())
    throw JobAborted("process set " + std::to_string(batch.process_set) + " was used before its links were attached");
  return comm;
}

void HostPath::start(PlannedBatch& batch, BatchEnd& end) {
  Comm& comm = comm_of(batch);
  comm.trace(batch.phases);
  spans_.clear();
  switch (batch.kind) {
    case HVD_ALLREDUCE: allreduce(comm, batch); break;
    case HVD_REDUCESCATTER: reducescatter(comm, batch); break;
    case HVD_ALLGATHER: allgather(comm, batch); break;
    case HVD_BROADCAST: broadcast(comm, batch); break;
    case HVD_ALLTOALL: alltoall(comm, batch); break;
    default: break;  // a barrier: everybody has arrived, and that is all it means
  }
  end.ended(batch, {});
}

void HostPath::abort(const std::string& why) { segment_.abort(why); }

int HostPath::waiting_for() const {
  int local = lane_.waiting_for();
  return local < 0 ? -1 : topology_.local_ranks()[local];
}

std::vector<int> HostPath::descriptors() const {
  std::vector<int> all;
  for (auto& [id, comm] : comms_)
    for (int fd : comm->descriptors()) all.push_back(fd);
  return all;
}

void HostPath::from_first_member(const PlannedBatch& batch, void* bytes, size_t n) {
  Comm& comm = comm_of(batch);
  comm.begin(batch.seq, false);
  comm.broadcast(static_cast<const char*>(bytes), static_cast<char*>(bytes), n, 0);
  comm.end();
}

Comm& HostPath::lend(const PlannedBatch& batch) {
  if (lent_) {
    lent_->settle();
  } else {
    lent_ = &comm_of(batch);
    lent_->trace(batch.phases);
    lent_->begin(batch.seq, false);
  }
  return *lent_;
}

void HostPath::take_back() {
  if (lent_) lent_->end();
  lent_ = nullptr;
}

void HostPath::allreduce(Comm& comm, const PlannedBatch& batch) {
  const Description& first = batch.agreed[0]->description;
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    Tensor* tensor = batch.tensors[i];
    char* out = tensor ? tensor->place_output(tensor->shape) : nullptr;
    spans_.add(tensor ? tensor->input : nullptr, out,
               static_cast<size_t>(payload_bytes(batch.agreed[i]->description, {})));
  }
  bool adasum = first.reduce_op == HVD_ADASUM;
  comm.begin(batch.seq, !adasum && spans_.bytes() <= comm.small_bytes());
  Reduction how = reduction_of(first, batch.layout->size());
  if (adasum) comm.adasum(spans_, how);
  else comm.reduce(spans_, how);
  comm.end();
}

void HostPath::reducescatter(Comm& comm, const PlannedBatch& batch) {
  int64_t members = batch.layout->size();
  int64_t me = batch.layout->my_index;
  for (Tensor* tensor : batch.tensors) {
    const Description& d = tensor->description;
    size_t row = row_bytes(d);
    int64_t rows = d.shape[0];
    int64_t base = rows / members;
    int64_t extra = rows % members;
    auto start = static_cast<size_t>(me * base + std::min(me, extra)) * row;
    auto count = static_cast<size_t>(base + (me < extra ? 1 : 0));
    std::vector<int64_t> shape = d.shape;
    shape[0] = static_cast<int64_t>(count);
    char* out = tensor->place_output(std::move(shape));
    spans_.add(tensor->input, nullptr, start);
    spans_.add(tensor->input + start, out, count * row);
    spans_.add(tensor->input + start + count * row, nullptr, static_cast<size_t>(rows) * row - start - count * row);
  }
  comm.begin(batch.seq, spans_.bytes() <= comm.small_bytes());
  comm.reduce(spans_, reduction_of(batch.agreed[0]->description, batch.layout->size()));
  comm.end();
}

void HostPath::allgather(Comm& comm, const PlannedBatch& batch) {
  const std::vector<int>& members = batch.layout->members;
  std::vector<size_t> blocks(members.size(), 0);
  std::vector<Spans> sinks(members.size());
  for (size_t t = 0; t < batch.tensors.size(); ++t) {
    Tensor* tensor = batch.tensors[t];
    size_t row = row_bytes(tensor->description);
    std::vector<size_t> sizes;
    int64_t rows = 0;
    for (int rank : members) {
      int64_t dim0 = share_of(*batch.agreed[t], rank).dim0;
      sizes.push_back(static_cast<size_t>(dim0) * row);
      rows += dim0;
    }
    std::vector<int64_t> shape = tensor->shape;
    shape[0] = rows;
    char* out = tensor->place_output(std::move(shape));
    spans_.add(tensor->input, nullptr, sizes[batch.layout->my_index]);
    for (size_t i = 0; i < members.size(); ++i) {
      sinks[i].add(nullptr, out, sizes[i]);
      blocks[i] += sizes[i];
      out += sizes[i];
    }
  }
  comm.begin(batch.seq, false);
  comm.allgather(spans_, blocks, sinks);
  comm.end();
}

void HostPath::broadcast(Comm& comm, const PlannedBatch& batch) {
  Tensor* tensor = batch.tensors[0];
  const std::vector<int>& members = batch.layout->members;
  auto root = std::lower_bound(members.begin(), members.end(), tensor->description.root) - members.begin();
  char* out = tensor->place_output(tensor->shape);
  comm.begin(batch.seq, false);
  comm.broadcast(tensor->input, out, tensor->bytes, static_cast<int>(root));
  comm.end();
}

void HostPath::alltoall(Comm& comm, const PlannedBatch& batch) {
  Tensor* tensor = batch.tensors[0];
  const std::vector<int>& members = batch.layout->members;
  size_t n = members.size();
  auto me = static_cast<size_t>(batch.layout->my_index);
  size_t row = row_bytes(tensor->description);
  std::vector<size_t> bytes(n * n);
  for (size_t s = 0; s < n; ++s) {
    const Share& share = share_of(*batch.agreed[0], members[s]);
    if (share.splits.size() != n) throw JobAborted("the plan holds splits of the wrong length");
    for (size_t d = 0; d < n; ++d) bytes[s * n + d] = static_cast<size_t>(share.splits[d]) * row;
    tensor->received_splits.push_back(share.splits[me]);
  }
  std::vector<int64_t> shape = tensor->shape;
  shape[0] = 0;
  for (int64_t rows : tensor->received_splits) shape[0] += rows;
  char* out = tensor->place_output(std::move(shape));
  std::vector<const char*> send(n);
  std::vector<char*> recv(n);
  const char* in = tensor->input;
  for (size_t i = 0; i < n; ++i) {
    send[i] = in;
    in += bytes[me * n + i];
    recv[i] = out;
    out += bytes[i * n + me];
  }
  comm.begin(batch.seq, false);
  comm.alltoall(bytes, send, recv);
  comm.end();
}

}  // namespace hvd
