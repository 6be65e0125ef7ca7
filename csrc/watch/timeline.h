// SPDX-License-Identifier: Apache-2.0
// Chrome-trace recording of every tensor's life on the coordinator: an array that is valid JSON after each flush, so a
// file can be opened while the job runs and after it crashed.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace hvd {

class Timeline {
 public:
  Timeline() = default;
  ~Timeline() { stop(); }

  // Starts writing to path; the same path again is a no-op, another one finishes the old file first.
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
  void flush_locked();
  void loop();

  std::mutex mutex_;
  std::atomic<bool> active_{false};
  bool mark_cycles_ = false;
  std::FILE* file_ = nullptr;
  std::string path_;
  std::string pending_;
  int64_t start_us_ = 0;
  std::map<std::string, int> ids_;
  std::set<std::string> negotiating_;
  std::thread thread_;
};

}  // namespace hvd
