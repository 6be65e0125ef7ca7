// SPDX-License-Identifier: Apache-2.0
#include "util/json.h"

namespace hvd {
namespace {

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

}  // namespace

std::string json_quoted(const std::string& text) {
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

}  // namespace hvd
