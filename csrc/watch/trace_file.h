// SPDX-License-Identifier: Apache-2.0
// A file with one JSON array that grows: complete after each append, so that it can be read while the job runs, after
// it crashed, and when the disk is full. What outgrows its limit loses its older half.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "util/fd.h"

namespace hvd {

class TraceFile {
 public:
  // head: the first elements, without the bracket. limit: bytes, 0 for none. The path must be, or become, a regular
  // file: the end of the array is written over again and again. False, with why, if that cannot be.
  bool open(const std::string& path, const std::string& head, int64_t limit, std::string* problem);
  bool is_open() const { return static_cast<bool>(file_); }
  const std::string& path() const { return path_; }
  void close() { file_.reset(); }

  // Further elements, each after a comma and a line break. If there is no room for them the array ends where it was:
  // false, and errno says why.
  bool append(const std::string& elements);
  // Whether it is time to shorten().
  bool is_full() const { return limit_ > 0 && end_ > limit_; }
  // Begins again with another head, and keeps the newer half of the rest. False as append().
  bool shorten(const std::string& head);
  // Writes over a part of the head.
  void patch(size_t at, const std::string& text);

 private:
  UniqueFd file_;
  std::string path_;
  int64_t limit_ = 0;
  off_t head_ = 0;  // where the elements after the head begin
  off_t end_ = 0;   // where the closing bracket stands
};

}  // namespace hvd
