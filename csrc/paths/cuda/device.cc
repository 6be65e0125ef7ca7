// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/device.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "util/clock.h"

namespace hvd::cuda {
InContext::InContext(const Device& device) {
  Context current = nullptr;
  HVD_CUDA(context_current, &current);
  if (current == device.context()) return;
  HVD_CUDA(context_push, device.context());
  pushed_ = true;
}

InContext::~InContext() {
  Context popped = nullptr;
  if (pushed_) driver().context_pop(&popped);
}

Event::~Event() { device_->take_back(raw_, timed_); }

bool Event::since(const Event& earlier, double* seconds) const {
  float milliseconds = 0;
  if (driver().event_elapsed(&milliseconds, earlier.raw_, raw_) != kSuccess) return false;
  *seconds = milliseconds * 1e-3;
  return true;
}

bool Event::reached() const { return driver().event_query(raw_) != kNotReady; }

void Event::precede(void* stream) const {
  InContext in(*device_);
  HVD_CUDA(stream_wait_event, static_cast<Stream>(stream), raw_, 0);
}

std::shared_ptr<Device> Device::get(int number) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<Device>> devices;
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Device> device = devices[number].lock();
  if (!device) devices[number] = device = std::make_shared<Device>(number);
  return device;
}

Device::Device(int number) : number(number) {
  int count = 0;
  HVD_CUDA(device_count, &count);
  if (number < 0 || number >= count)
    throw CudaError(kInvalidValue,
                    "there is no GPU " + std::to_string(number) + ": this process sees " + std::to_string(count));
  HVD_CUDA(primary_retain, &context_, number);
}

Device::~Device() {
  // At the end of a process the driver may be gone before us; then these calls fail, and there is nothing to free.
  const Driver& cuda = driver();
  Context popped = nullptr;
  if (cuda.context_push(context_) == kSuccess) {
    for (auto& [lane, s] : streams_) cuda.stream_destroy(s);
    for (RawEvent e : idle_) cuda.event_destroy(e);
    for (RawEvent e : idle_timed_) cuda.event_destroy(e);
    cuda.context_pop(&popped);
  }
  cuda.primary_release(number);
}

Stream Device::stream(int lane) {
  std::lock_guard<std::mutex> lock(mutex_);
  Stream& stream = streams_[lane];
  if (stream) return stream;
  InContext in(*this);
  int least = 0;
  int greatest = 0;
  HVD_CUDA(priority_range, &least, &greatest);
  HVD_CUDA(stream_create, &stream, kStreamNonBlocking, greatest);
  return stream;
}

bool Device::drained(Stream stream, double seconds) const {
  const Driver& cuda = driver();
  Context popped = nullptr;
  if (cuda.context_push(context_) != kSuccess) return true;
  double deadline = now_s() + seconds;
  bool busy = cuda.stream_query(stream) == kNotReady;
  while (busy && now_s() < deadline) {
    usleep(50);
    busy = cuda.stream_query(stream) == kNotReady;
  }
  cuda.context_pop(&popped);
  return !busy;
}

bool Device::drained(double seconds) {
  std::map<int, Stream> streams;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    streams = streams_;
  }
  double deadline = now_s() + seconds;
  return std::all_of(streams.begin(), streams.end(),
                     [&](const auto& lane) { return drained(lane.second, deadline - now_s()); });
}

EventPtr Device::record(Stream stream, bool timed) {
  RawEvent raw = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<RawEvent>& idle = timed ? idle_timed_ : idle_;
    if (!idle.empty()) {
      raw = idle.back();
      idle.pop_back();
    }
  }
  InContext in(*this);
  if (!raw) HVD_CUDA(event_create, &raw, timed ? kEventTimed : kEventDisableTiming);
  auto event = std::make_shared<Event>(shared_from_this(), raw, timed);
  HVD_CUDA(event_record, raw, stream);
  return event;
}

void Device::take_back(RawEvent raw, bool timed) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  (timed ? idle_timed_ : idle_).push_back(raw);
}

int Device::attribute(int which, int fallback) const {
  int value = 0;
  return driver().device_attribute(&value, which, number) == kSuccess ? value : fallback;
}

Uuid Device::uuid() const {
  Uuid uuid{};
  HVD_CUDA(device_uuid, &uuid, number);
  return uuid;
}

std::string Device::name() const {
  char text[128] = "";
  HVD_CUDA(device_name, text, sizeof text, number);
  return text;
}

bool Device::capturing(Stream stream) const {
  InContext in(*this);
  int status = kCaptureNone;
  HVD_CUDA(stream_capturing, stream, &status);
  return status != kCaptureNone;
}

Address Device::allocate(size_t bytes, const std::string& purpose, const std::string& advice) {
  InContext in(*this);
  Address memory = 0;
  Result result = driver().memory_alloc(&memory, bytes);
  if (result == kOutOfMemory)
    throw CudaError(result, "no " + mebibytes(bytes) + " of memory on GPU " + std::to_string(number) + " (" + name() +
                                ") for " + purpose + ": " + memory_left() + ". " + advice);
  check(result, kCallNames.memory_alloc);
  return memory;
}

void Device::free(Address memory) noexcept {
  Context popped = nullptr;
  if (!memory || driver().context_push(context_) != kSuccess) return;
  driver().memory_free(memory);
  driver().context_pop(&popped);
}

Buffer::~Buffer() {
  for (Address memory : memory_) device_->free(memory);
}

char* Buffer::reserve(size_t bytes) {
  if (bytes > size_) {
    size_t wanted = size_t{1} << 20;
    while (wanted < bytes) wanted *= 2;
    memory_.push_back(device_->allocate(wanted, purpose_, advice_));
    size_ = wanted;
  }
  return memory_.empty() ? nullptr : pointer_to(memory_.back());
}

Pinned::Pinned(const Device& device, size_t bytes) : size_(bytes) {
  InContext in(device);
  void* memory = nullptr;
  HVD_CUDA(host_alloc, &memory, bytes, kHostPortable | kHostMapped);
  data_ = static_cast<char*>(memory);
  HVD_CUDA(host_address, &address_, memory, 0);
}

Pinned::~Pinned() {
  if (data_) driver().host_free(data_);
}

}  // namespace hvd::cuda
