// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/driver.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>

#include "util/library.h"

namespace hvd::cuda {
namespace {

std::atomic<const Driver*> ready{nullptr};

const Driver* open_driver(const std::string& path, std::string* why) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    *why = "the NVIDIA driver's library cannot be loaded: " + std::string(dlerror());
    return nullptr;
  }
  auto* found = new Driver;  // for the rest of the process, as the library is
  found->path = path;
  std::string missing;
#define HVD_FIND(member, symbol, arguments) \
  if (!find_symbol(library, #symbol, &found->member)) missing = #symbol;
  HVD_DRIVER_CALLS(HVD_FIND)
#undef HVD_FIND
  if (!missing.empty()) {
    *why = path + " lacks " + missing + "; a driver for CUDA 11 or newer is needed";
    delete found;
    return nullptr;
  }
  Result result = found->init(0);
  if (result == kSuccess) result = found->driver_version(&found->version);
  if (result != kSuccess) {
    *why = "the NVIDIA driver does not start: " + found->describe(result);
    delete found;
    return nullptr;
  }
  return found;
}

}  // namespace

const Driver* load_driver(const std::string& path, std::string* why) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (const Driver* before = ready.load()) return before;
  const Driver* found = open_driver(path, why);
  ready.store(found);
  return found;
}

const Driver* loaded_driver() { return ready.load(std::memory_order_acquire); }

const Driver& driver() {
  const Driver* found = loaded_driver();
  if (!found) throw CudaError(kDeinitialized, "the NVIDIA driver has not been loaded");
  return *found;
}

std::string Driver::describe(Result result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  get_error_name(result, &name);
  get_error_string(result, &text);
  return std::string(name ? name : "unknown error") + " (" + (text ? text : std::to_string(result)) + ")";
}

void check(Result result, const char* call) {
  if (result != kSuccess) throw CudaError(result, std::string(call) + ": " + driver().describe(result));
}

}  // namespace hvd::cuda
