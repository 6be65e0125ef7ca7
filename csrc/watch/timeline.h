// SPDX-License-Identifier: Apache-2.0
// Chrome-trace recording of every tensor's life on the coordinator: an array that is valid JSON after each flush, so a
// file can be opened while the job runs, after it crashed, and when the disk is full.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "util/fd.h"

namespace hvd {

class Timeline {
 public:
  Timeline() = default;
  ~Timeline() { stop(); }

  // Starts writing to path, which must be (or become) a regular file: the end of the array is written over again and
  // again. The same path again is a no-op, another one finishes the old file first. False, and a line in the log, if
  // that cannot be. Any thread.
  bool start(const std::string& path, bool mark_cycles);
  void stop();
  bool active() const { return active_.load(std::memory_order_relaxed); }

  void negotiate_begin(const std::string& name, const char* op);
  void ready(const std::string& name, int rank);
  void negotiate_end(const std::string& name);
  void begin(const std::string& name, const char* what);
  void end(const std::string& name);
  void end(const std::string& name, const char* dtype, const std::string& shape);
  void cycle();

 private:
  int process_id(const std::string& name);
  void event(const std::string& text) { pending_ += ",\n" + text; }
  int64_t now_us() const;
  void stop_locked();
  void loop();
  // These need mutex_.
  bool open_file(const std::string& path, std::string* problem);
  bool write(const std::string& text);
  void flush();

  std::mutex life_mutex_;  // start and stop, one at a time; taken before mutex_
  std::atomic<bool> active_{false};
  std::thread thread_;  // guarded by life_mutex_

  std::mutex mutex_;  // guards the rest
  UniqueFd file_;
  off_t end_ = 0;  // where the closing bracket stands
  std::string path_;
  std::string pending_;  // events that are not in the file yet
  std::atomic<bool> mark_cycles_{false};
  int64_t start_us_ = 0;
  std::map<std::string, int> ids_;
  std::set<std::string> negotiating_;
};

}  // namespace hvd
