// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/nccl.h"

#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "util/library.h"

namespace hvd::cuda {
namespace {

std::atomic<const Nccl*> ready{nullptr};

constexpr char kSoname[] = "libnccl.so.2";

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string path_of(void* symbol, const std::string& fallback) {
  Dl_info info{};
  return dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : fallback;
}

const Nccl* fill(void* library, const std::string& path, const std::string& origin, std::string* why) {
  auto found = std::make_unique<Nccl>();
  std::string missing;
#define HVD_FIND(member, symbol, arguments) \
  if (!find_symbol(library, #symbol, &found->member)) missing = #symbol;
  HVD_NCCL_CALLS(HVD_FIND)
#undef HVD_FIND
  if (!find_symbol(library, "ncclGetErrorString", &found->error_string)) missing = "ncclGetErrorString";
  if (!find_symbol(library, "ncclGetLastError", &found->last_error)) missing = "ncclGetLastError";
  if (found->get_version) found->get_version(&found->version);
  if (found->version >= kNcclWithSplit) find_symbol(library, "ncclCommSplit", &found->split);
  if (!missing.empty() || found->version < kNcclOldest) {
    *why = path + " is NCCL " + version_text(found->version) + "; 2.14 or newer is needed" +
           (missing.empty() ? "" : " (" + missing + " is missing)");
    return nullptr;
  }
  found->path = path_of(reinterpret_cast<void*>(found->get_version), path);
  found->origin = origin;
  return found.release();  // for the rest of the process, as the library is
}

const Nccl* open_nccl(const std::string& given, std::string* why) {
  // Two copies of NCCL in a process do not know of each other: take the framework's where it has one, also one that
  // was linked into it.
  if (void* library = dlopen(kSoname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD))
    return fill(library, kSoname, "loaded by the framework", why);
  if (dlsym(RTLD_DEFAULT, "ncclCommInitRankConfig"))
    return fill(RTLD_DEFAULT, "the program", "loaded by the framework", why);
  std::vector<std::pair<std::string, std::string>> places;
  if (!given.empty()) places.emplace_back(given, "given");
  places.emplace_back(kSoname, "found in the system");
  for (auto& [path, origin] : places) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return fill(library, path, origin, why);
    *why = std::string("NCCL cannot be loaded: ") + dlerror();
  }
  return nullptr;
}

// The usual causes, from what users met.
const char* next_step(NcclResult result, const std::string& text) {
  auto has = [&](const char* words) { return text.find(words) != std::string::npos; };
  if (has("Duplicate GPU"))
    return "Two ranks use one GPU, which NCCL refuses: give each rank its own with "
           "torch.cuda.set_device(hvd.local_rank()), or set HOROVOD_GPU_OPERATIONS=direct to let ranks share one.";
  if (has("/dev/shm") || has("No space left"))
    return "NCCL needs room in /dev/shm: start the container with --shm-size=1g (Kubernetes: an emptyDir of medium "
           "Memory), or set NCCL_SHM_DISABLE=1.";
  if (has("ncclUniqueId") || has("Bootstrap") || has("bootstrap") || has("socket") || has("Connect"))
    return "Name the network interface that all hosts share: NCCL_SOCKET_IFNAME=eth0, e.g.";
  if (has("version") || has("mismatch")) return "All ranks must load the same NCCL: see horovodrun --check.";
  if (result == kNcclUnhandledCuda)
    return "The GPU or its driver reported it; look at dmesg for Xid lines and run with NCCL_DEBUG=WARN.";
  if (result == kNcclRemote) return "Another rank left; its own error says why.";
  return "Run with NCCL_DEBUG=WARN for more; HOROVOD_GPU_OPERATIONS=host goes on without NCCL.";
}

}  // namespace

std::string Nccl::version_text() const { return cuda::version_text(version); }

const Nccl* load_nccl(const std::string& path, std::string* why) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (!ready.load()) ready.store(open_nccl(path, why));
  return ready.load();
}

const Nccl* loaded_nccl() { return ready.load(); }

std::string describe_nccl(const Nccl& nccl, NcclResult result, const char* call, const std::string& last_error) {
  std::string text = std::string(call) + " of NCCL " + nccl.version_text() + ": " + nccl.error_string(result);
  if (!last_error.empty()) text += " (" + last_error + ")";
  return text + ". " + next_step(result, text);
}

}  // namespace hvd::cuda
