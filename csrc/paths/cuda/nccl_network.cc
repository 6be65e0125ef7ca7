// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/nccl_network.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

namespace hvd::cuda {
namespace {

// A library that it would take instead of what it has of its own.
bool finds_plugin() {
  void* plugin = dlopen("libnccl-net.so", RTLD_LAZY | RTLD_LOCAL);
  if (plugin) dlclose(plugin);
  return plugin != nullptr;
}

bool holds_something(const std::string& folder) {
  std::error_code none;
  return std::filesystem::directory_iterator(folder, none) != std::filesystem::directory_iterator();
}

}  // namespace

NcclNetwork find_network(const std::function<const char*(const char*)>& get, const std::string& adapters) {
  auto value = [&](const char* name) {
    const char* said = get(name);
    return std::string(said ? said : "");
  };
  auto on = [&](const char* name) { return value(name) == "1"; };
  NcclNetwork network;
  network.host = value("NCCL_HOSTID");
  network.apart = on("NCCL_P2P_DISABLE") && on("NCCL_SHM_DISABLE");
  std::string wanted = value("NCCL_NET");
  std::string plugin = value("NCCL_NET_PLUGIN");
  if (!wanted.empty()) network.sockets = wanted == "Socket" || wanted == "socket";
  else if (!plugin.empty() && plugin != "none") network.sockets = false;
  else if (plugin.empty() && finds_plugin()) network.sockets = false;
  else network.sockets = on("NCCL_IB_DISABLE") || !holds_something(adapters);
  return network;
}

}  // namespace hvd::cuda
