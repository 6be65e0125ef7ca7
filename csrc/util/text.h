// SPDX-License-Identifier: Apache-2.0
// Text and numbers that mean the same in every locale: the program around us may have called setlocale, after which
// tolower('I') is not 'i' (Turkish) and strtod("0.5") is 0 (German).
#pragma once

#include <locale.h>
#include <stdlib.h>

#include <cerrno>
#include <string>

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

}  // namespace hvd
