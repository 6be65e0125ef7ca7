// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace hvd {

// A text as a JSON string, with its quotes. Names come from users: what is not UTF-8 becomes U+FFFD.
std::string json_quoted(const std::string& text);

}  // namespace hvd
