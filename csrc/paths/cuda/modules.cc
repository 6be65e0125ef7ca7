// SPDX-License-Identifier: Apache-2.0
#include "paths/cuda/modules.h"

#include "horovod/core.h"

namespace hvd::cuda {

const char* element_name(int dtype) {
  switch (dtype) {
    case HVD_UINT8:
    case HVD_BOOL: return "u8";
    case HVD_INT8: return "i8";
    case HVD_UINT16: return "u16";
    case HVD_INT16: return "i16";
    case HVD_UINT32: return "u32";
    case HVD_INT32: return "i32";
    case HVD_UINT64: return "u64";
    case HVD_INT64: return "i64";
    case HVD_FLOAT16: return "f16";
    case HVD_BFLOAT16: return "bf16";
    case HVD_FLOAT32: return "f32";
    case HVD_FLOAT64: return "f64";
    default: return nullptr;
  }
}

Modules::~Modules() {
  Context popped = nullptr;
  if (driver().context_push(device_->context()) != kSuccess) return;
  for (auto& [element, module] : modules_) driver().module_unload(module);
  driver().context_pop(&popped);
}

Module Modules::load(const std::string& element) {
  auto known = modules_.find(element);
  if (known != modules_.end()) return known->second;
  const char* text = ptx_text(element);
  if (!text) throw CudaError(kInvalidValue, "there are no kernels for " + element);
  std::vector<char> log(4096, 0);
  unsigned options[] = {kJitErrorLog, kJitErrorLogBytes};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
  Module module = nullptr;
  Result result = driver().module_load(&module, text, 2, options, values);
  if (result != kSuccess)
    throw CudaError(result, "the driver cannot compile the kernels for " + element + " on " + device_->name() + ": " +
                                driver().describe(result) + (log[0] ? std::string("; ") + log.data() : ""));
  modules_[element] = module;
  return module;
}

Function Modules::find(const std::string& element, const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto known = functions_.find(name);
  if (known != functions_.end()) return known->second;
  InContext in(*device_);
  Function found = nullptr;
  HVD_CUDA(module_function, &found, load(element), name.c_str());
  functions_[name] = found;
  return found;
}

int Modules::resident_blocks(Function kernel) {
  InContext in(*device_);
  int blocks = 0;
  HVD_CUDA(occupancy, &blocks, kernel, kThreads, 0);
  return blocks;
}

void Modules::launch_raw(Function kernel, size_t blocks, void* arguments, Stream stream) {
  if (!blocks) return;
  void* parameters[] = {arguments};
  HVD_CUDA(launch, kernel, static_cast<unsigned>(blocks), 1, 1, kThreads, 1, 1, 0, stream, parameters, nullptr);
}

}  // namespace hvd::cuda
