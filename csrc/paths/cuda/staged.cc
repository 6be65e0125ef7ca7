// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/staged.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "util/clock.h"
#include "util/dtype.h"

namespace hvd::cuda {
namespace {

Reduction reduction_of(const Reduce& how) {
  // Powers of two are in the multiplier already (scaling.h).
  return {how.dtype, how.op, 1.0, how.after.multiplier, how.after.divide ? how.after.whole : 1};
}

void copy(void* to, const void* from, size_t bytes, Stream stream) {
  if (bytes) HVD_CUDA(copy_async, address_of(to), address_of(from), bytes, stream);
}

}  // namespace

Staged::Staged(std::shared_ptr<Device> device, HostPath& host, int me, int n)
    : Group(me, n),
      device_(std::move(device)),
      host_(host),
      down_(device_->stream(kDownLane)),
      up_(device_->stream(kUpLane)) {}

Staged::~Staged() {
  device_->drained(down_, 5.0);
  device_->drained(up_, 5.0);
}

void Staged::await(const Event& event) {
  for (double start = now_s(); !event.reached();) {
    host_.check();
    if (now_s() - start > 100e-6) usleep(20);
  }
}

template <class Work>
void Staged::in_chunks(const void* in, void* out, size_t bytes, Stream stream, Work work) {
  const char* from = static_cast<const char*>(in);
  char* to = static_cast<char*>(out);
  for (auto& chunk : chunks_)
    if (!chunk) chunk = std::make_unique<Pinned>(*device_, kChunkBytes);
  EventPtr begin = device_->record(stream);
  begin->precede(down_);
  begin->precede(up_);
  size_t count = (bytes + kChunkBytes - 1) / kChunkBytes;
  std::array<EventPtr, kChunks> there;
  auto fetch = [&](size_t k) {
    if (k >= count) return;
    size_t slot = k % kChunks;
    if (free_[slot]) free_[slot]->precede(down_);
    if (from) copy(chunks_[slot]->data(), from + k * kChunkBytes, chunk_at(k * kChunkBytes, bytes), down_);
    there[slot] = device_->record(down_);
  };
  for (size_t k = 0; k + 1 < kChunks; ++k) fetch(k);
  for (size_t k = 0; k < count; ++k) {
    fetch(k + kChunks - 1);
    size_t slot = k % kChunks;
    await(*there[slot]);
    size_t n = chunk_at(k * kChunkBytes, bytes);
    try {
      work(chunks_[slot]->data(), n);
    } catch (...) {  // nobody writes to the tensor any more when its owner hears of it
      device_->drained(up_, 0.5);
      throw;
    }
    if (to) copy(to + k * kChunkBytes, chunks_[slot]->data(), n, up_);
    free_[slot] = device_->record(up_);
  }
  device_->record(up_)->precede(stream);
}

void Staged::all_reduce(const Reduce& how, const void* in, void* out, size_t count, Stream stream) {
  in_chunks(in, out, count * item_size(how.dtype), stream, [&](char* chunk, size_t bytes) {
    Spans spans;
    spans.add(chunk, chunk, bytes);
    host_.lend(*batch_).reduce(spans, reduction_of(how));
  });
}

void Staged::broadcast(const void* in, void* out, size_t bytes, int root, Stream stream) {
  bool mine = root == me;
  in_chunks(mine ? in : nullptr, mine && in == out ? nullptr : out, bytes, stream,
            [&](char* chunk, size_t n) { host_.lend(*batch_).broadcast(chunk, chunk, n, root); });
}

char* Staged::whole(size_t bytes) {
  if (whole_free_) await(*whole_free_);
  if (!whole_ || whole_->size() < bytes) {
    whole_.reset();
    whole_ = std::make_unique<Pinned>(*device_, std::max<size_t>(bytes, kChunkBytes));
  }
  return whole_->data();
}

char* Staged::to_host(const void* from, size_t bytes, char* to, Stream stream) {
  copy(to, from, bytes, stream);
  await(*device_->record(stream));
  return to;
}

void Staged::reduce_scatter(const Reduce& how, const void* in, void* out, const std::vector<size_t>& begins,
                            const std::vector<size_t>& counts, Stream stream) {
  size_t item = item_size(how.dtype);
  size_t all = 0;
  for (size_t i = 0; i < begins.size(); ++i) all = std::max(all, (begins[i] + counts[i]) * item);
  if (!all) return;
  char* host = to_host(in, all, whole(all), stream);
  auto my = static_cast<size_t>(me);
  size_t begin = begins[my] * item;
  size_t mine = counts[my] * item;
  Spans spans;
  spans.add(host, nullptr, begin);
  spans.add(host + begin, host + begin, mine);
  spans.add(host + begin + mine, nullptr, all - begin - mine);
  host_.lend(*batch_).reduce(spans, reduction_of(how));
  copy(out, host + begin, mine, stream);
  whole_free_ = device_->record(stream);
}

void Staged::all_gather(const void* in, char* out, const std::vector<size_t>& begins, const std::vector<size_t>& bytes,
                        Stream stream) {
  size_t all = 0;
  for (size_t b : bytes) all += b;
  if (!all) return;
  auto my = static_cast<size_t>(me);
  char* host = whole(all + bytes[my]);
  Spans mine;
  mine.add(to_host(in, bytes[my], host + all, stream), nullptr, bytes[my]);
  std::vector<Spans> sinks(bytes.size());
  char* at = host;
  for (size_t i = 0; i < bytes.size(); ++i) {
    sinks[i].add(nullptr, at, bytes[i]);
    at += bytes[i];
  }
  host_.lend(*batch_).allgather(mine, bytes, sinks);
  at = host;
  for (size_t i = 0; i < bytes.size(); ++i) {
    copy(out + begins[i], at, bytes[i], stream);
    at += bytes[i];
  }
  whole_free_ = device_->record(stream);
}

void Staged::all_to_all(const char* in, char* out, const std::vector<size_t>& bytes, Stream stream) {
  auto members = static_cast<size_t>(n);
  auto my = static_cast<size_t>(me);
  size_t sent = 0;
  size_t received = 0;
  for (size_t i = 0; i < members; ++i) {
    sent += bytes[my * members + i];
    received += bytes[i * members + my];
  }
  char* host = whole(sent + received + 1);
  to_host(in, sent, host, stream);
  std::vector<const char*> send(members);
  std::vector<char*> receive(members);
  char* from = host;
  char* to = host + sent;
  for (size_t i = 0; i < members; ++i) {
    send[i] = from;
    from += bytes[my * members + i];
    receive[i] = to;
    to += bytes[i * members + my];
  }
  host_.lend(*batch_).alltoall(bytes, send, receive);
  copy(out, host + sent, received, stream);
  whole_free_ = device_->record(stream);
}

}  // namespace hvd::cuda
