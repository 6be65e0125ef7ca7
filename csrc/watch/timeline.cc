// SPDX-License-Identifier: Apache-2.0
#include "watch/timeline.h"

#include <unistd.h>

#include <chrono>
#include <cstring>

#include "util/log.h"
#include "util/threads.h"

namespace hvd {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

int64_t Timeline::now_us() const {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count() - start_us_;
}

bool Timeline::start(const std::string& path, bool mark_cycles) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (file_ && path == path_) return true;
  }
  stop();
  std::lock_guard<std::mutex> lock(mutex_);
  file_ = std::fopen(path.c_str(), "we");
  if (!file_) {
    HVD_LOG(Error, "Error opening the Horovod Timeline file " << path << ", will not write a timeline.");
    return false;
  }
  path_ = path;
  mark_cycles_ = mark_cycles;
  ids_.clear();
  negotiating_.clear();
  start_us_ = 0;
  start_us_ = now_us();
  auto epoch = std::chrono::system_clock::now().time_since_epoch();
  auto epoch_us = std::chrono::duration_cast<std::chrono::microseconds>(epoch).count();
  std::fprintf(file_,
               "[\n{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 0, \"args\": "
               "{\"start_time_since_epoch_in_micros\":%lld}},\n"
               "{\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\": 0, \"args\": {\"sort_index\": 0}}\n]",
               static_cast<long long>(epoch_us));
  std::fflush(file_);
  active_ = true;
  thread_ = start_thread("hvd-timeline", [this] { loop(); });
  return true;
}

void Timeline::stop() {
  active_ = false;
  if (thread_.joinable()) thread_.join();
  std::lock_guard<std::mutex> lock(mutex_);
  if (!file_) return;
  flush_locked();
  std::fclose(file_);
  file_ = nullptr;
}

void Timeline::loop() {
  while (active_) {
    usleep(20000);
    std::lock_guard<std::mutex> lock(mutex_);
    flush_locked();
  }
}

// Replaces the closing bracket by the new events and a new bracket, in one write.
void Timeline::flush_locked() {
  if (!file_ || pending_.empty()) return;
  std::fseek(file_, -2, SEEK_END);  // "\n]"
  pending_ += "\n]";
  std::fwrite(pending_.data(), 1, pending_.size(), file_);
  std::fflush(file_);
  pending_.clear();
}

int Timeline::process_id(const std::string& name) {
  auto [it, added] = ids_.try_emplace(name, static_cast<int>(ids_.size()) + 1);
  if (added) {
    std::string id = std::to_string(it->second);
    event("{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": " + id + ", \"args\": {\"name\": " + quoted(name) +
          "}}");
    event("{\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\": " + id + ", \"args\": {\"sort_index\": " + id +
          "}}");
  }
  return it->second;
}

void Timeline::begin(const std::string& name, const char* what) {
  if (!active()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  int id = process_id(name);
  event("{\"ph\": \"B\", \"name\": " + quoted(what) + ", \"ts\": " + std::to_string(now_us()) +
        ", \"pid\": " + std::to_string(id) + "}");
}

void Timeline::end(const std::string& name) {
  if (!active()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  int id = process_id(name);
  event("{\"ph\": \"E\", \"ts\": " + std::to_string(now_us()) + ", \"pid\": " + std::to_string(id) + "}");
}

void Timeline::end(const std::string& name, const char* dtype, const std::string& shape) {
  if (!active()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  int id = process_id(name);
  event("{\"ph\": \"E\", \"ts\": " + std::to_string(now_us()) + ", \"pid\": " + std::to_string(id) +
        ", \"args\": {\"dtype\": " + quoted(dtype) + ", \"shape\": " + quoted(shape) + "}}");
}

void Timeline::negotiate_begin(const std::string& name, const char* op) {
  if (!active()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!negotiating_.insert(name).second) return;
  }
  begin(name, (std::string("NEGOTIATE_") + op).c_str());
}

void Timeline::ready(const std::string& name, int rank) {
  if (!active()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  int id = process_id(name);
  event("{\"ph\": \"X\", \"name\": \"" + std::to_string(rank) + "\", \"ts\": " + std::to_string(now_us()) +
        ", \"pid\": " + std::to_string(id) + ", \"dur\": 0}");
}

void Timeline::negotiate_end(const std::string& name) {
  if (!active()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!negotiating_.erase(name)) return;
  }
  end(name);
}

void Timeline::cycle() {
  if (!active() || !mark_cycles_) return;
  std::lock_guard<std::mutex> lock(mutex_);
  event("{\"ph\": \"i\", \"name\": \"CYCLE_START\", \"ts\": " + std::to_string(now_us()) + ", \"s\": \"g\"}");
}

}  // namespace hvd
