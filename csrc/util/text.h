// SPDX-License-Identifier: Apache-2.0
// Text and numbers that mean the same in every locale: the program around us may have called setlocale, after which
// tolower('I') is not 'i' (Turkish) and strtod("0.5") is 0 (German).
#pragma once

#include <locale.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

namespace hvd {

inline std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

// The number that is the whole of a text; false for anything else, or one that does not fit.
inline bool parse_number(const std::string& text, double* out) {
  static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", nullptr);
  char* end = nullptr;
  *out = strtod_l(text.c_str(), &end, c_locale);
  return end != text.c_str() && *end == 0;
}

inline bool parse_number(const std::string& text, long long* out) {
  char* end = nullptr;
  errno = 0;
  *out = strtoll(text.c_str(), &end, 10);
  return end != text.c_str() && *end == 0 && errno == 0;
}

// "a,b" at ','; nothing of an empty text.
inline std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace hvd
