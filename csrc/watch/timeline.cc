// SPDX-License-Identifier: Apache-2.0
#include "watch/timeline.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "util/json.h"
#include "util/log.h"
#include "util/threads.h"

namespace hvd {
namespace {

constexpr char kClose[] = "\n]";
constexpr size_t kCloseBytes = 2;

}  // namespace

int64_t Timeline::now_us() const {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count() - start_us_;
}

bool Timeline::open_file(const std::string& path, std::string* problem) {
  // Not waiting for the other end of a pipe.
  file_ = UniqueFd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666));
  struct stat info{};
  if (!file_) *problem = std::strerror(errno);
  else if (fstat(file_.get(), &info) != 0 || !S_ISREG(info.st_mode)) *problem = "it is not a regular file";
  if (!problem->empty()) return false;
  path_ = path;
  ids_.clear();
  negotiating_.clear();
  pending_.clear();
  end_ = 0;
  start_us_ = 0;
  start_us_ = now_us();
  auto epoch = std::chrono::system_clock::now().time_since_epoch();
  auto epoch_us = std::chrono::duration_cast<std::chrono::microseconds>(epoch).count();
  if (write("[\n{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 0, \"args\": "
            "{\"start_time_since_epoch_in_micros\":" +
            std::to_string(epoch_us) +
            "}},\n{\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\": 0, \"args\": {\"sort_index\": 0}}"))
    return true;
  *problem = std::strerror(errno);
  return false;
}

bool Timeline::start(const std::string& path, bool mark_cycles) {
  std::lock_guard<std::mutex> life(life_mutex_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (file_ && path == path_) return true;
  }
  stop_locked();
  std::lock_guard<std::mutex> lock(mutex_);
  std::string problem;
  if (!open_file(path, &problem)) {
    file_.reset();
    HVD_LOG(Error,
            "Error opening the Horovod Timeline file " << path << ", will not write a timeline. (" << problem << ")");
    return false;
  }
  mark_cycles_ = mark_cycles;
  active_ = true;
  thread_ = start_thread("hvd-timeline", [this] { loop(); });
  return true;
}

void Timeline::stop() {
  std::lock_guard<std::mutex> life(life_mutex_);
  stop_locked();
}

void Timeline::stop_locked() {
  active_ = false;
  if (thread_.joinable()) thread_.join();
  std::lock_guard<std::mutex> lock(mutex_);
  flush();
  file_.reset();
}

void Timeline::loop() {
  while (active_) {
    usleep(20000);
    std::lock_guard<std::mutex> lock(mutex_);
    flush();
  }
}

// Replaces the closing bracket by the text and a new bracket. If there is no room for it, the old bracket comes back:
// its place in the file is paid for already.
bool Timeline::write(const std::string& text) {
  const std::string all = text + kClose;
  for (size_t done = 0; done < all.size();) {
    ssize_t n = pwrite(file_.get(), all.data() + done, all.size() - done, end_ + static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      int reason = n == 0 ? ENOSPC : errno;
      if (end_ > 0 && pwrite(file_.get(), kClose, kCloseBytes, end_) == static_cast<ssize_t>(kCloseBytes) &&
          ftruncate(file_.get(), end_ + static_cast<off_t>(kCloseBytes)) != 0)
        HVD_LOG(Error, "cannot shorten " << path_ << ": " << std::strerror(errno));
      errno = reason;
      return false;
    }
    done += static_cast<size_t>(n);
  }
  end_ += static_cast<off_t>(text.size());
  return true;
}

void Timeline::flush() {
  if (!file_ || pending_.empty()) return;
  bool written = write(std::exchange(pending_, {}));
  if (written) return;
  HVD_LOG(Error, "The Horovod Timeline file " << path_ << " could not be continued (" << std::strerror(errno)
                                              << "): it ends here, complete up to this point.");
  active_ = false;
  file_.reset();
}

int Timeline::process_id(const std::string& name) {
  auto [it, added] = ids_.try_emplace(name, static_cast<int>(ids_.size()) + 1);
  if (added) {
    std::string id = std::to_string(it->second);
    event("{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": " + id + ", \"args\": {\"name\": " + json_quoted(name) +
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
  event("{\"ph\": \"B\", \"name\": " + json_quoted(what) + ", \"ts\": " + std::to_string(now_us()) +
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
        ", \"args\": {\"dtype\": " + json_quoted(dtype) + ", \"shape\": " + json_quoted(shape) + "}}");
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
