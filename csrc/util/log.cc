// SPDX-License-Identifier: Apache-2.0
#include "util/log.h"

#include <sys/time.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "util/text.h"

namespace hvd {
namespace {

std::atomic<LogLevel> threshold{LogLevel::Warning};
std::atomic<bool> hide_timestamp{false};

}  // namespace

void configure_log(const std::string& level, bool hide_time) {
  static const char* names[] = {"trace", "debug", "info", "warning", "error", "fatal"};
  const std::string wanted = lower(level);
  LogLevel chosen = LogLevel::Warning;
  for (int i = 0; i < 6; ++i)
    if (wanted == names[i]) chosen = static_cast<LogLevel>(i);
  threshold = chosen;
  hide_timestamp = hide_time;
}

bool log_enabled(LogLevel level) { return level >= threshold.load(std::memory_order_relaxed); }

void write_log(LogLevel level, const char* file, int line, const std::string& text) {
  const char* base = std::strrchr(file, '/');
  base = base ? base + 1 : file;
  std::string prefix = "[";
  if (!hide_timestamp) {
    timeval now{};
    gettimeofday(&now, nullptr);
    std::tm calendar{};
    localtime_r(&now.tv_sec, &calendar);
    char stamp[64];
    size_t n = std::strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &calendar);
    std::snprintf(stamp + n, sizeof stamp - n, ".%06ld: ", static_cast<long>(now.tv_usec));
    prefix += stamp;
  }
  prefix += "TDIWEF"[static_cast<int>(level)];
  std::string record = prefix + " " + base + ":" + std::to_string(line) + "] " + text + "\n";
  // One write a record, so that lines of several ranks never interleave within a line.
  std::FILE* stream = level >= LogLevel::Warning ? stderr : stdout;
  std::fwrite(record.data(), 1, record.size(), stream);
  std::fflush(stream);
}

}  // namespace hvd
