// SPDX-License-Identifier: Apache-2.0
// Log lines in the documented format: "[2026-01-31 12:00:00.000042: W engine.cc:10] [3]: text".
#pragma once

#include <sstream>
#include <string>

namespace hvd {

enum class LogLevel { Trace, Debug, Info, Warning, Error, Fatal };

// Levels as in HOROVOD_LOG_LEVEL ("debug", "WARNING", ...; unknown means warning).
void configure_log(const std::string& level, bool hide_time);
bool log_enabled(LogLevel level);
void write_log(LogLevel level, const char* file, int line, const std::string& text);

}  // namespace hvd

#define HVD_LOG(level, stream_expression)                                                 \
  do {                                                                                    \
    if (::hvd::log_enabled(::hvd::LogLevel::level)) {                                     \
      std::ostringstream hvd_log_stream;                                                  \
      hvd_log_stream << stream_expression;                                                \
      ::hvd::write_log(::hvd::LogLevel::level, __FILE__, __LINE__, hvd_log_stream.str()); \
    }                                                                                     \
  } while (0)
