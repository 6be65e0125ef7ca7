// SPDX-License-Identifier: Apache-2.0
// The file in which the ranks of a host, or of a job whose hosts share the folder, put down what they did last: one
// line of JSON each. Every rank writes for itself, so that nobody has to be alive but the one who writes.
#pragma once

#include <string>

namespace hvd {

// Appends a line as a whole. False, with errno, if it cannot be; files of others and links are left alone.
bool append_line(const std::string& path, const std::string& line);

}  // namespace hvd
