// SPDX-License-Identifier: Apache-2.0
// Chrome-trace recording of every tensor's life on this rank, and of the agreement about it on the coordinator.
//
// Who records only appends to a list; a thread of its own turns the list into text, 50 times a second. Each tensor name
// is a "process" of the trace. See docs/timeline.md for the names of the spans.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "control/message.h"
#include "util/device_work.h"
#include "watch/trace_file.h"

namespace hvd {

class Timeline {
 public:
  struct Identity {
    int rank = 0;
    int size = 1;
    std::string host;
  };
  explicit Timeline(Identity identity) : identity_(std::move(identity)) {}
  ~Timeline() { stop(); }

  // Starts writing. The same path again is a no-op, another one finishes the old file first. False, and a line in the
  // log, if that cannot be. Any thread. limit: bytes after which the older half is given up, 0 for never.
  bool start(const std::string& path, bool mark_cycles, int64_t limit);
  void stop();
  bool active() const { return active_.load(std::memory_order_relaxed); }
  // What to add to this rank's times to get rank 0's.
  void set_clock_offset(int64_t us) { offset_us_ = us; }

  using What = std::shared_ptr<const Description>;
  // The coordinator: somebody is ready; a rank is; all are, `last_rank` last.
  void negotiate_begin(const What& what);
  void ready(const What& what, int rank);
  void negotiate_end(const What& what, int last_rank);
  void cycle();

  // This rank's part in a tensor: times by now_s().
  struct Life {
    double queued = 0, announced = 0, started = 0;
    int64_t bytes = 0;
    uint64_t seq = 0;
    int last_rank = -1;
  };
  void begin(const What& what, const Life& life);
  void span(const What& what, const char* phase, double from, double to);  // phase: static memory
  void end(const What& what, const std::vector<int64_t>& output_shape);
  // A front end copied this tensor before it handed it in, or after it got it back. Any thread.
  void copied(const std::string& name, const char* phase, double from, double to);  // phase: static memory

  // What a device did: rows of their own. Who knows of it is asked by the writing thread, from start to stop,
  // then for the last time.
  using DeviceWorks = std::function<std::vector<DeviceWork>(bool last)>;
  void follow_devices(DeviceWorks works) { works_ = std::move(works); }  // before the first start

  // inferred: nobody has said that the step ended then.
  void step(int64_t number, double at, bool inferred);
  void mark(const std::string& text);

 private:
  static constexpr size_t kMaxPending = 1 << 18;  // events; more are dropped, and counted
  enum class Type : uint8_t { NegotiateBegin, Ready, NegotiateEnd, Cycle, Begin, Span, End, Copy, Step, Mark };
  struct Event {
    Event(Type type, double at, What what = nullptr) : type(type), at(at), what(std::move(what)) {}

    Type type;
    int8_t dims = 0;
    bool inferred = false;
    int rank = -1;
    double at, to = 0;
    What what;
    const char* phase = nullptr;
    Life life{};
    std::array<int64_t, 6> shape{};
    int64_t number = 0;
    std::string text;
  };
  struct Name {
    int64_t id;  // of its "process"
    int half;    // in which half of the file's it was last used
  };
  struct Track {
    Name* name;
    std::string about;      // ', "pid": 7, "cat": "horovod", "args": {"tensor": "x", "kind": "ALLREDUCE"'
    std::string pid;        // ', "pid": 7, "cat": "horovod"'
    std::string negotiate;  // "NEGOTIATE_ALLREDUCE"
    What what;              // keeps the address it is found by
  };

  void push(Event event);
  void stop_locked();
  // The writing thread, or with it stopped.
  void loop();
  void flush(bool last);
  void format(const Event& event);
  void format(const DeviceWork& work);
  const Track& track(const What& what);
  // Of a name; the first time, it is introduced.
  Name& row(const std::string& name);
  std::string introduction(const std::string& name, int64_t id) const;
  std::string head();
  bool shorten();
  void add(const char* text) { out_ += text; }
  void add(const std::string& text) { out_ += text; }
  void add(int64_t number);
  void add_time(double at);
  void open_event(char type, const char* name, double at);
  void add_about(const Track& track, const Life& life);
  void complete(const Track& track, const char* name, double from, double to, const Life* life);

  const Identity identity_;
  DeviceWorks works_;
  std::mutex life_mutex_;  // start and stop, one at a time
  std::atomic<bool> active_{false};
  std::atomic<bool> mark_cycles_{false};
  std::atomic<int64_t> offset_us_{0};
  std::string path_;    // guarded by life_mutex_
  std::thread thread_;  // guarded by life_mutex_

  std::mutex mutex_;  // guards the two below
  std::vector<Event> pending_;
  int64_t dropped_ = 0;

  // The writing thread's.
  TraceFile file_;
  std::string out_;  // elements that are not in the file yet
  std::vector<Event> taken_;
  double start_ = 0;  // now_s() of ts 0
  int64_t start_epoch_us_ = 0;
  size_t offset_at_ = 0;  // where in the head the offset stands
  int64_t offset_written_ = 0;
  int64_t next_id_ = 1;
  int half_ = 0;
  std::map<std::string, Name> names_;
  std::unordered_map<const Description*, Track> tracks_;
  std::set<std::string> negotiating_;
};

// The description inside of an object that outlives this rank's interest in it.
template <typename Owner>
Timeline::What described(const std::shared_ptr<const Owner>& owner) {
  return {owner, &owner->description};
}

// "timeline.json" for rank 0, "timeline.rank3.json" for rank 3.
std::string timeline_path(const std::string& path, int rank);

}  // namespace hvd
