// SPDX-License-Identifier: Apache-2.0
#include "watch/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace hvd {
namespace {

constexpr char kClose[] = "\n]";
constexpr size_t kCloseBytes = 2;
constexpr char kBetween[] = ",\n{";  // elements are objects, and have no line break inside

bool write_all(int fd, const char* data, size_t bytes, off_t at) {
  while (bytes > 0) {
    ssize_t n = pwrite(fd, data, bytes, at);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENOSPC;
    if (n <= 0) return false;
    data += n;
    bytes -= static_cast<size_t>(n);
    at += n;
  }
  return true;
}

// Where the first whole element after `from` begins, with its comma; `end` if there is none.
off_t next_element(int fd, off_t from, off_t end) {
  std::vector<char> window(1 << 16);
  while (from < end) {
    auto want = static_cast<size_t>(std::min<off_t>(end - from, static_cast<off_t>(window.size())));
    ssize_t n = pread(fd, window.data(), want, from);
    if (n < 3) return end;
    auto it = std::search(window.begin(), window.begin() + n, kBetween, kBetween + 3);
    if (it != window.begin() + n) return from + (it - window.begin());
    from += n - 2;
  }
  return end;
}

bool copy(int from, off_t begin, off_t end, int to, off_t at) {
  std::vector<char> window(1 << 20);
  while (begin < end) {
    ssize_t n = pread(from, window.data(),
                      static_cast<size_t>(std::min<off_t>(end - begin, static_cast<off_t>(window.size()))), begin);
    if (n <= 0 || !write_all(to, window.data(), static_cast<size_t>(n), at)) return false;
    begin += n;
    at += n;
  }
  return true;
}

}  // namespace

bool TraceFile::open(const std::string& path, const std::string& head, int64_t limit, std::string* problem) {
  // Not waiting for the other end of a pipe.
  file_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666));
  struct stat info{};
  if (!file_) *problem = std::strerror(errno);
  else if (fstat(file_.get(), &info) != 0 || !S_ISREG(info.st_mode)) *problem = "it is not a regular file";
  else {
    path_ = path;
    limit_ = limit;
    end_ = 0;
    if (append("[\n" + head)) {
      head_ = end_;
      return true;
    }
    *problem = std::strerror(errno);
  }
  file_.reset();
  return false;
}

// Replaces the closing bracket by the text and a new bracket. If there is no room for it, the old bracket comes back:
// its place in the file is paid for already.
bool TraceFile::append(const std::string& elements) {
  const std::string all = elements + kClose;
  if (!write_all(file_.get(), all.data(), all.size(), end_)) {
    int reason = errno;
    if (end_ > 0 && write_all(file_.get(), kClose, kCloseBytes, end_)) [[maybe_unused]]
      int cut = ftruncate(file_.get(), end_ + static_cast<off_t>(kCloseBytes));
    errno = reason;
    return false;
  }
  end_ += static_cast<off_t>(elements.size());
  return true;
}

// The shorter one is written beside it and takes its place as a whole: whoever reads has either.
bool TraceFile::shorten(const std::string& head) {
  const std::string beside = path_ + ".new";
  UniqueFd shorter(::open(beside.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!shorter) return false;
  const std::string begin = "[\n" + head;
  auto head_bytes = static_cast<off_t>(begin.size());
  off_t from = next_element(file_.get(), std::max(head_, end_ - static_cast<off_t>(limit_ / 2)), end_);
  off_t end = head_bytes + (end_ - from);
  if (!write_all(shorter.get(), begin.data(), begin.size(), 0) ||
      !copy(file_.get(), from, end_, shorter.get(), head_bytes) ||
      !write_all(shorter.get(), kClose, kCloseBytes, end) || rename(beside.c_str(), path_.c_str()) != 0) {
    int reason = errno;
    unlink(beside.c_str());
    errno = reason;
    return false;
  }
  file_ = std::move(shorter);
  head_ = head_bytes;
  end_ = end;
  return true;
}

void TraceFile::patch(size_t at, const std::string& text) {
  if (file_) write_all(file_.get(), text.data(), text.size(), static_cast<off_t>(at + 2));  // after the bracket
}

}  // namespace hvd
