// SPDX-License-Identifier: Apache-2.0
#include "watch/recorder.h"

#include <algorithm>
#include <cstring>

#include "util/clock.h"
#include "util/dtype.h"
#include "util/json.h"
#include "util/prefetch.h"

namespace hvd {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
// Who sees a field of a slot's next record also sees that its number is gone.
constexpr auto kWrite = std::memory_order_release;
constexpr auto kRead = std::memory_order_acquire;

std::string micros(double at, double epoch) {
  return std::to_string(at > 0 ? static_cast<int64_t>((at + epoch) * 1e6) : 0);
}

}  // namespace

Recorder::Slot* Recorder::slot_of(uint64_t number) const {
  Slot& slot = (*slots_)[number % kKept];
  return slot.number.load(kRelaxed) == number ? &slot : nullptr;
}

uint64_t Recorder::queued(const What& what, double now) {
  uint64_t number = next_.fetch_add(1, kRelaxed);
  Slot& slot = (*slots_)[number % kKept];
  slot.number.store(0, kRelaxed);
  size_t length = std::min(what.name.size(), kNameBytes - 1);
  for (size_t i = 0; i <= length; i += 8) {
    char word[8] = {};
    std::memcpy(word, what.name.data() + i, std::min<size_t>(8, length - i));
    uint64_t value;
    std::memcpy(&value, word, sizeof value);
    slot.name[i / 8].store(value, kWrite);
  }
  size_t dims = std::min(what.shape.size(), kDims);
  for (size_t i = 0; i < dims; ++i) slot.shape[i].store(what.shape[i], kWrite);
  slot.dims.store(static_cast<int32_t>(dims), kWrite);
  slot.kind.store(what.kind, kWrite);
  slot.bytes.store(what.bytes, kWrite);
  slot.dtype.store(what.dtype, kWrite);
  slot.process_set.store(what.process_set, kWrite);
  slot.last_rank.store(-1, kWrite);
  slot.state.store(kQueued, kWrite);
  slot.queued.store(now, kWrite);
  for (auto* later : {&slot.announced, &slot.started, &slot.ended}) later->store(0, kWrite);
  slot.number.store(number, kWrite);
  // The next comes from memory meanwhile.
  prefetch_to_write(&(*slots_)[(number + 1) % kKept], sizeof slot);
  return number;
}

void Recorder::announced(uint64_t number, double now) {
  Slot* slot = slot_of(number);
  if (!slot) return;
  slot->announced.store(now, kRelaxed);
  slot->state.store(kAnnounced, kRelaxed);
}

void Recorder::started(uint64_t number, double now, int last_rank) {
  Slot* slot = slot_of(number);
  if (!slot) return;
  slot->started.store(now, kRelaxed);
  slot->last_rank.store(last_rank, kRelaxed);
  slot->state.store(kRunning, kRelaxed);
}

void Recorder::ended(uint64_t number, double now, bool ok) {
  Slot* slot = slot_of(number);
  if (!slot) return;
  slot->ended.store(now, kRelaxed);
  slot->state.store(ok ? kDone : kFailed, kRelaxed);
}

std::string Recorder::object(const Slot& slot, uint64_t number, double epoch) const {
  static const char* const states[] = {"queued", "announced", "running", "done", "failed"};
  char name[kNameBytes];
  for (size_t i = 0; i < kNameBytes / 8; ++i) {
    uint64_t word = slot.name[i].load(kRead);
    std::memcpy(name + i * 8, &word, sizeof word);
  }
  name[kNameBytes - 1] = 0;
  std::string shape;
  for (int i = 0; i < slot.dims.load(kRead); ++i) shape += (i ? ", " : "") + std::to_string(slot.shape[i].load(kRead));
  double announced = slot.announced.load(kRead);
  double started = slot.started.load(kRead);
  int last = slot.last_rank.load(kRead);
  bool waited = started > 0 && announced > 0 && last >= 0 && last != rank_;
  return "{\"seq\": " + std::to_string(number) + ", \"name\": " + json_quoted(name) + ", \"kind\": \"" +
         slot.kind.load(kRead) + "\", \"dtype\": \"" + dtype_name(slot.dtype.load(kRead)) + "\", \"shape\": [" + shape +
         "], \"bytes\": " + std::to_string(slot.bytes.load(kRead)) +
         ", \"process_set\": " + std::to_string(slot.process_set.load(kRead)) + ", \"state\": \"" +
         states[slot.state.load(kRead)] + "\", \"queued_us\": " + micros(slot.queued.load(kRead), epoch) +
         ", \"ready_us\": " + micros(announced, epoch) + ", \"started_us\": " + micros(started, epoch) +
         ", \"ended_us\": " + micros(slot.ended.load(kRead), epoch) + ", \"last_rank\": " + std::to_string(last) +
         ", \"waited_us\": " + std::to_string(waited ? static_cast<int64_t>((started - announced) * 1e6) : 0) + "}";
}

std::string Recorder::json(size_t newest) const {
  double epoch = epoch_s() - now_s();
  uint64_t end = next_.load(kRead);
  std::string out = "[";
  for (uint64_t number = end > newest ? end - newest : 1; number < end; ++number) {
    const Slot& slot = (*slots_)[number % kKept];
    if (slot.number.load(kRead) != number) continue;
    std::string text = object(slot, number, epoch);
    if (slot.number.load(kRelaxed) != number) continue;  // overwritten while it was read
    if (out.size() > 1) out += ",\n";
    out += text;
  }
  return out + "]";
}

}  // namespace hvd
