// SPDX-License-Identifier: Apache-2.0
// Flat little-endian encoding for control messages, with every read checked against the end.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace hvd {

// A message from a peer does not follow the format. Never trusted further: the link is dropped.
struct ParseError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Writer {
 public:
  template <typename T>
  void put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const char* p = reinterpret_cast<const char*>(&value);
    bytes_.append(p, sizeof value);
  }
  void put_text(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
  }
  template <typename T>
  void put_list(const std::vector<T>& list) {
    put(static_cast<uint32_t>(list.size()));
    if (!list.empty()) bytes_.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T));
  }
  // Overwrites a value written earlier, e.g. a length known only at the end.
  template <typename T>
  void patch(size_t at, T value) {
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  size_t size() const { return bytes_.size(); }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, need(sizeof value), sizeof value);
    return value;
  }
  std::string get_text() {
    uint32_t n = get<uint32_t>();
    const char* p = need(n);
    return std::string(p, n);
  }
  template <typename T>
  std::vector<T> get_list() {
    uint32_t n = get<uint32_t>();
    if (n > remaining() / sizeof(T)) throw ParseError("list longer than its message");
    const char* p = need(n * sizeof(T));
    std::vector<T> list(n);
    if (n) std::memcpy(list.data(), p, n * sizeof(T));
    return list;
  }
  // A count of items that each take at least min_item bytes: bounded by what is really there, so that a
  // peer's word never makes us allocate.
  uint32_t get_count(size_t min_item) {
    uint32_t n = get<uint32_t>();
    if (n > remaining() / min_item) throw ParseError("count larger than its message");
    return n;
  }
  size_t remaining() const { return bytes_.size(); }
  void expect_end() const {
    if (!bytes_.empty()) throw ParseError("bytes left over at the end of a message");
  }

 private:
  const char* need(size_t n) {
    if (n > bytes_.size()) throw ParseError("message ends early");
    const char* p = bytes_.data();
    bytes_.remove_prefix(n);
    return p;
  }
  std::string_view bytes_;
};

}  // namespace hvd
