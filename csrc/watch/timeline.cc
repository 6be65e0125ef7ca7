// SPDX-License-Identifier: Apache-2.0
#include "watch/timeline.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "util/log.h"
#include "util/threads.h"

namespace hvd {
namespace {

constexpr char kClose[] = "\n]";
constexpr size_t kCloseBytes = 2;

// Bytes of the UTF-8 character that begins here, or 0 if none does.
size_t character(const std::string& text, size_t at) {
  auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  unsigned first = byte(at);
  size_t n = first < 0x80 ? 1 : first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : 4;
  if (n == 4 && (first < 0xf0 || first > 0xf4)) return 0;
  for (size_t i = 1; i < n; ++i)
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  unsigned second = byte(at + 1);
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f)) return 0;  // overlong, surrogate
  if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) return 0;  // overlong, beyond Unicode
  return n;
}

// As a JSON string. Names come from users: what is not text becomes U+FFFD.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    size_t n = character(text, i);
    char c = text[i];
    if (n == 0) {
      out += "\\ufffd";
      n = 1;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      static const char* hex = "0123456789abcdef";
      out += std::string("\\u00") + hex[c >> 4] + hex[c & 15];
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out.append(text, i, n);
    }
    i += n;
  }
  return out + "\"";
}

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
