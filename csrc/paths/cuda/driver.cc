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

std::string mebibytes(size_t bytes) {
  if (bytes < 1 << 20) return std::to_string(bytes) + " bytes";
  return std::to_string((bytes + (1 << 19)) >> 20) + " MiB";
}

std::string memory_left() {
  size_t available = 0;
  size_t total = 0;
  driver().memory_info(&available, &total);
  return mebibytes(available) + " of " + mebibytes(total) + " are free";
}

void check(Result result, const char* call) {
  if (result == kSuccess) return;
  std::string text = std::string(call) + ": " + driver().describe(result);
  if (DeviceNumber device = 0; result == kOutOfMemory && driver().context_device(&device) == kSuccess)
    text += ", out of memory on GPU " + std::to_string(device) + ": " + memory_left() +
            ". Leave the engine some MiB, e.g. by a smaller batch.";
  throw CudaError(result, text);
}

}  // namespace hvd::cuda
