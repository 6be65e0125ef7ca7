// SPDX-License-Identifier: Apache-2.0
// One GPU as this process uses it: the framework's own context, streams and events of ours, and memory that is kept.
//
// Nothing here creates a context that the framework did not: a Device is made when a tensor on that GPU comes, and by
// then its primary context is there.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "paths/cuda/driver.h"
#include "paths/tensor.h"

namespace hvd::cuda {

class Device;

// Makes a device's context current on this thread while it lives.
class InContext {
 public:
  explicit InContext(const Device& device);
  ~InContext();
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  bool pushed_ = false;
};

// A point in a stream. It goes back to its device's pool when nobody holds it any more.
class Event : public DevicePoint {
 public:
  Event(std::shared_ptr<Device> device, RawEvent raw, bool timed)
      : device_(std::move(device)), raw_(raw), timed_(timed) {}
  ~Event() override;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // A device that failed has reached it: whoever looks next at the data hears of it.
  bool reached() const override;
  void precede(void* stream) const override;
  Device& device() const { return *device_; }
  RawEvent raw() const { return raw_; }
  bool timed() const { return timed_; }
  // From another one to this; both have times and were reached. False: the driver does not know.
  bool since(const Event& earlier, double* seconds) const;

 private:
  std::shared_ptr<Device> device_;
  RawEvent raw_;
  const bool timed_;
};
using EventPtr = std::shared_ptr<Event>;

class Device : public std::enable_shared_from_this<Device> {
 public:
  // The device with this number, made on first use and kept while somebody holds it.
  static std::shared_ptr<Device> get(int number);
  explicit Device(int number);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const int number;
  Context context() const { return context_; }
  // What the collectives run on: lane 0, and further ones for what may go on beside it, made when they are new. They
  // come before the framework's kernels when both could run.
  Stream stream(int lane);
  // An event recorded on a stream of this device now; one with a time costs the device more.
  EventPtr record(Stream stream, bool timed = false);
  // Whether the stream has nothing left to do; asks for up to `seconds`. Whoever asks is about to end: a device that
  // failed, or a driver that has gone, does nothing any more, and that is no error here.
  bool drained(Stream stream, double seconds) const;
  // All that stream() has made.
  bool drained(double seconds);

  int attribute(int which, int fallback) const;
  Uuid uuid() const;
  std::string name() const;
  // Whether the stream is being captured into a graph, where nothing of ours can take part.
  bool capturing(Stream stream) const;

  // Throws CudaError with the size, what it was for, what is free, and `advice`.
  Address allocate(size_t bytes, const std::string& purpose, const std::string& advice);
  void free(Address memory) noexcept;

 private:
  friend class Event;
  void take_back(RawEvent raw, bool timed) noexcept;

  Context context_ = nullptr;
  std::mutex mutex_;
  std::map<int, Stream> streams_;  // by lane
  std::vector<RawEvent> idle_;
  std::vector<RawEvent> idle_timed_;
};

// Device memory that grows when more is asked for and is freed with its owner. What was in it is lost. Growing waits
// for nothing: what was smaller stays too, since kernels may still use it; together that is less than the new one.
class Buffer {
 public:
  Buffer(std::shared_ptr<Device> device, std::string purpose, std::string advice)
      : device_(std::move(device)), purpose_(std::move(purpose)), advice_(std::move(advice)) {}
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  // At least `bytes`, aligned to 256.
  char* reserve(size_t bytes);

 private:
  std::shared_ptr<Device> device_;
  const std::string purpose_;
  const std::string advice_;
  std::vector<Address> memory_;  // the last is in use
  size_t size_ = 0;
};

// Pinned host memory that all GPUs of this process can reach.
class Pinned {
 public:
  Pinned(const Device& device, size_t bytes);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  char* data() const { return data_; }
  Address address() const { return address_; }
  size_t size() const { return size_; }

 private:
  char* data_ = nullptr;
  Address address_ = 0;
  size_t size_ = 0;
};

// Lanes of Device::stream beyond those of the collectives.
constexpr int kRescueLane = 16;
constexpr int kDownLane = 17;   // copies to the host
constexpr int kUpLane = 18;     // and back
constexpr int kClockLane = 19;  // nothing but events of trace.h

inline Address address_of(const void* p) { return reinterpret_cast<Address>(p); }
inline char* pointer_to(Address a) { return reinterpret_cast<char*>(a); }

}  // namespace hvd::cuda
