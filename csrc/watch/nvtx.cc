// SPDX-License-Identifier: Apache-2.0
#include "watch/nvtx.h"

#include <dlfcn.h>

#include "util/log.h"

namespace hvd {

Nvtx::Nvtx(const std::string& path) {
  if (path.empty()) return;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  auto start = library ? reinterpret_cast<decltype(start_)>(dlsym(library, "nvtxRangeStartA")) : nullptr;
  end_ = library ? reinterpret_cast<decltype(end_)>(dlsym(library, "nvtxRangeEnd")) : nullptr;
  if (start && end_) {
    start_ = start;
    return;
  }
  HVD_LOG(Warning, "There will be no NVTX ranges: " << path << " cannot be used (" << (library ? "" : dlerror())
                                                    << (library ? "it lacks nvtxRangeStartA or nvtxRangeEnd" : "")
                                                    << ").");
}

uint64_t Nvtx::start(const Description& first, size_t tensors) const {
  std::string text = std::string(first.kind_text()) + " " + first.name;
  if (tensors > 1) text += " and " + std::to_string(tensors - 1) + " more";
  return start_(text.c_str());
}

}  // namespace hvd
