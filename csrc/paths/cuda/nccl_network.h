// SPDX-License-Identifier: Apache-2.0
// What NCCL has for its bytes, as far as can be told before it is asked: it does not say so itself.
#pragma once

#include <functional>
#include <string>

namespace hvd::cuda {

struct NcclNetwork {
  bool sockets = false;  // between hosts it talks over TCP
  bool apart = false;    // within a host it may not use anything else either
  std::string host;      // what it was told to take for its host; empty: the real one
};

// get: a variable's value, or null, as getenv. adapters: the folder in which the system lists InfiniBand adapters.
NcclNetwork find_network(const std::function<const char*(const char*)>& get, const std::string& adapters);

}  // namespace hvd::cuda
