// SPDX-License-Identifier: Apache-2.0
// What tensors are matched by: process set and name. A tensor is looked up half a dozen times on its way, so the hash
// of its name is made once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace hvd {

// Valid as long as the name.
struct TensorKey {
  TensorKey(int32_t in_set, std::string_view called) : TensorKey(in_set, called, hash_of(in_set, called)) {}
  TensorKey(int32_t in_set, std::string_view called, size_t known_hash)
      : process_set(in_set), name(called), hash(known_hash) {}

  static size_t hash_of(int32_t process_set, std::string_view name) {
    return std::hash<std::string_view>{}(name) ^ static_cast<size_t>(process_set);
  }
  bool operator==(const TensorKey& other) const {
    return hash == other.hash && process_set == other.process_set && name == other.name;
  }

  int32_t process_set;
  std::string_view name;
  size_t hash;
};

struct TensorKeyHash {
  size_t operator()(const TensorKey& key) const { return key.hash; }
};

}  // namespace hvd
