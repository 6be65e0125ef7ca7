// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/nccl_group.h"

#include <algorithm>
#include <cstring>

#include "horovod/core.h"
#include "util/dtype.h"
#include "util/round.h"

namespace hvd::cuda {
namespace {

// Bytes that are worth a communicator of their own: starting one more takes some 50 us, and its thread sends about as
// much in twice that time.
constexpr size_t kLeastPart = 512 << 10;
// Where parts may begin: at a line of the GPU's cache.
constexpr size_t kGrain = 128;

int nccl_op(int dtype, int op) {
  if (dtype == HVD_BOOL) return op == HVD_SUM || op == HVD_MAX ? kNcclMax : kNcclMin;
  switch (op) {
    case HVD_MIN: return kNcclMin;
    case HVD_MAX: return kNcclMax;
    case HVD_PRODUCT: return kNcclProduct;
    default: return kNcclSum;
  }
}

// The factor as NCCL wants it: a value of the tensors' own type. False where that would round it.
bool as_scalar(int dtype, double factor, void* out) {
  auto x = static_cast<float>(factor);
  f16 half{};
  bf16 brain{};
  switch (dtype) {
    case HVD_FLOAT64: std::memcpy(out, &factor, sizeof factor); return true;
    case HVD_FLOAT32: std::memcpy(out, &x, sizeof x); return true;
    case HVD_FLOAT16:
      narrow(x, &half);
      std::memcpy(out, &half, sizeof half);
      return static_cast<double>(widen(half)) == factor;
    case HVD_BFLOAT16:
      narrow(x, &brain);
      std::memcpy(out, &brain, sizeof brain);
      return static_cast<double>(widen(brain)) == factor;
    default: return false;
  }
}

bool equal_blocks(const std::vector<size_t>& begins, const std::vector<size_t>& sizes) {
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] != sizes[0] || begins[i] != i * sizes[0]) return false;
  return true;
}

int nccl_type(int dtype) {
  switch (dtype) {
    case HVD_UINT8:
    case HVD_BOOL: return kNcclUint8;
    case HVD_INT8: return kNcclInt8;
    case HVD_INT32: return kNcclInt32;
    case HVD_UINT32: return kNcclUint32;
    case HVD_INT64: return kNcclInt64;
    case HVD_UINT64: return kNcclUint64;
    case HVD_FLOAT16: return kNcclFloat16;
    case HVD_BFLOAT16: return kNcclBfloat16;
    case HVD_FLOAT32: return kNcclFloat32;
    case HVD_FLOAT64: return kNcclFloat64;
    default: return -1;
  }
}

double factor_of(const Reduce& how) { return how.after.multiplier / how.after.divisor; }

bool fine(NcclResult result) { return result == kNcclSuccess || result == kNcclInProgress; }

}  // namespace

// NCCL has no integers of 16 bits. What wraps there wraps alike in 32 bits that are cut to 16.
int NcclGroup::travels_as(int dtype) const {
  return dtype == HVD_INT16 ? HVD_INT32 : dtype == HVD_UINT16 ? HVD_UINT32 : dtype;
}

NcclGroup::NcclGroup(const Nccl& nccl, std::shared_ptr<Device> device, Converter& converter, const NcclId& id, int me,
                     int n, int communicators, std::function<void()> check_job)
    : Group(me, n),
      nccl_(nccl),
      device_(device),
      converter_(converter),
      communicators_(nccl, std::move(device), id, me, n, communicators, std::move(check_job)) {}

NcclGroup::Range NcclGroup::Turn::part_of(size_t count, size_t item) const {
  size_t most = round_up(divide_up(count, static_cast<size_t>(parts)), kGrain / item);
  size_t begin = std::min(count, most * static_cast<size_t>(part));
  return {begin, std::min(most, count - begin)};
}

void NcclGroup::end() {
  if (--depth_ == 0) carry_out();
}

void NcclGroup::add(Call call, Stream stream) {
  calls_.push_back(std::move(call));
  stream_ = stream;
  if (depth_ == 0) carry_out();
}

// The communicators take their parts in the same order on all members: kernels may wait for each other's places.
void NcclGroup::carry_out() {
  std::vector<Call> calls = std::exchange(calls_, {});
  size_t bytes = 0;
  for (const Call& call : calls) bytes += call.bytes;
  auto parts = static_cast<int>(std::clamp<size_t>(bytes / kLeastPart, 1, static_cast<size_t>(communicators_.count())));
  EventPtr before = parts > 1 ? device_->record(stream_) : nullptr;
  std::vector<EventPtr> done;
  for (int i = 0; i < parts; ++i) {
    Stream stream = i ? device_->stream(i) : stream_;
    if (i) before->precede(stream);
    communicators_.together(i, [&](Communicator& one) {
      for (const Call& call : calls)
        if (i == 0 || call.bytes != kWhole) communicators_.check(one, call.put({one, i, parts, stream}), call.name);
    });
    if (i) done.push_back(device_->record(stream));
  }
  for (const EventPtr& event : done) event->precede(stream_);
  for (const Call& call : calls)
    if (call.after) call.after();
}

// Where the reduction does not scale, whoever has the sums does.
bool NcclGroup::scales(const Reduce& how) {
  char scalar[8];
  return how.op == HVD_SUM && as_scalar(how.dtype, factor_of(how), scalar);
}

int NcclGroup::operator_for(const Reduce& how, Communicator& on) {
  if (!any(how.after) || !scales(how)) return nccl_op(how.dtype, how.op);
  auto [place, added] = on.scaled_sums.try_emplace({how.dtype, factor_of(how)}, 0);
  if (added) {
    char scalar[8];
    as_scalar(how.dtype, factor_of(how), scalar);
    communicators_.check(on, nccl_.scaled_sum(&place->second, scalar, nccl_type(how.dtype), kNcclScalarOnHost, on.raw),
                         "ncclRedOpCreatePreMulSum");
  }
  return place->second;
}

std::function<void()> NcclGroup::scaling(const Reduce& how, void* sums, size_t count, Stream stream) {
  if (!any(how.after) || scales(how) || !count) return nullptr;
  return [=, this] { converter_.run(how.dtype, how.dtype, how.after, {{sums, sums, count}}, stream); };
}

void NcclGroup::all_reduce(const Reduce& how, const void* in, void* out, size_t count, Stream stream) {
  if (!count) return;
  size_t item = item_size(how.dtype);
  auto put = [=, this](const Turn& turn) -> NcclResult {
    Range part = turn.part_of(count, item);
    if (!part.count) return kNcclSuccess;
    return nccl_.all_reduce(static_cast<const char*>(in) + part.begin * item,
                            static_cast<char*>(out) + part.begin * item, part.count, nccl_type(how.dtype),
                            operator_for(how, turn.on), turn.on.raw, turn.stream);
  };
  add({"ncclAllReduce", count * item, put, scaling(how, out, count, stream)}, stream);
}

void NcclGroup::reduce_scatter(const Reduce& how, const void* in, void* out, const std::vector<size_t>& begins,
                               const std::vector<size_t>& counts, Stream stream) {
  size_t mine = counts[static_cast<size_t>(me)];
  auto put = [=, this](const Turn& turn) -> NcclResult {
    int type = nccl_type(how.dtype);
    int op = operator_for(how, turn.on);
    if (equal_blocks(begins, counts))
      return mine ? nccl_.reduce_scatter(in, out, mine, type, op, turn.on.raw, turn.stream) : kNcclSuccess;
    NcclResult result = kNcclSuccess;
    for (size_t i = 0; i < counts.size() && fine(result); ++i)
      if (counts[i])
        result = nccl_.reduce(static_cast<const char*>(in) + begins[i] * item_size(how.dtype),
                              static_cast<int>(i) == me ? out : nullptr, counts[i], type, op, static_cast<int>(i),
                              turn.on.raw, turn.stream);
    return result;
  };
  add({"ncclReduceScatter", kWhole, put, scaling(how, out, mine, stream)}, stream);
}

void NcclGroup::all_gather(const void* in, char* out, const std::vector<size_t>& begins,
                           const std::vector<size_t>& bytes, Stream stream) {
  auto put = [=, this](const Turn& turn) -> NcclResult {
    if (equal_blocks(begins, bytes))
      return bytes[0] ? nccl_.all_gather(in, out, bytes[0], kNcclInt8, turn.on.raw, turn.stream) : kNcclSuccess;
    NcclResult result = kNcclSuccess;
    for (size_t i = 0; i < bytes.size() && fine(result); ++i)
      if (bytes[i])
        result = nccl_.broadcast(static_cast<int>(i) == me ? in : out + begins[i], out + begins[i], bytes[i], kNcclInt8,
                                 static_cast<int>(i), turn.on.raw, turn.stream);
    return result;
  };
  add({"ncclAllGather", kWhole, put, nullptr}, stream);
}

void NcclGroup::broadcast(const void* in, void* out, size_t bytes, int root, Stream stream) {
  if (!bytes) return;
  auto put = [=, this](const Turn& turn) -> NcclResult {
    Range part = turn.part_of(bytes, 1);
    if (!part.count) return kNcclSuccess;
    return nccl_.broadcast(static_cast<const char*>(in) + part.begin, static_cast<char*>(out) + part.begin, part.count,
                           kNcclInt8, root, turn.on.raw, turn.stream);
  };
  add({"ncclBroadcast", bytes, put, nullptr}, stream);
}

void NcclGroup::all_to_all(const char* in, char* out, const std::vector<size_t>& bytes, Stream stream) {
  auto members = static_cast<size_t>(n);
  auto my = static_cast<size_t>(me);
  auto put = [=, this](const Turn& turn) -> NcclResult {
    const char* from = in;
    char* to = out;
    NcclResult result = kNcclSuccess;
    for (size_t i = 0; i < members && fine(result); ++i) {
      size_t sent = bytes[my * members + i];
      size_t received = bytes[i * members + my];
      int peer = static_cast<int>(i);
      if (i == my) {
        if (sent) HVD_CUDA(copy_async, address_of(to), address_of(from), sent, turn.stream);
      } else {
        if (sent) result = nccl_.send(from, sent, kNcclInt8, peer, turn.on.raw, turn.stream);
        if (received && fine(result)) result = nccl_.receive(to, received, kNcclInt8, peer, turn.on.raw, turn.stream);
      }
      from += sent;
      to += received;
    }
    return result;
  };
  add({"ncclSend", kWhole, put, nullptr}, stream);
}

}  // namespace hvd::cuda
