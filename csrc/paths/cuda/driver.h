// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, found at run time. Nothing happens at import: it is opened when the first GPU tensor comes.
#pragma once

#include <stdexcept>
#include <string>

#include "paths/cuda/driver_abi.h"

namespace hvd::cuda {

struct Driver {
#define HVD_DECLARE(member, symbol, arguments) Result(*member) arguments = nullptr;
  HVD_DRIVER_CALLS(HVD_DECLARE)
#undef HVD_DECLARE
  int version = 0;  // e.g. 13000: the newest CUDA it serves
  std::string path;

  // "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
  std::string describe(Result result) const;
};

// A call of the driver failed.
struct CudaError : std::runtime_error {
  CudaError(Result result, const std::string& text) : std::runtime_error(text), code(result) {}
  Result code;
};

// Opens the library at `path`, e.g. "libcuda.so.1", and starts the driver. Once a process: later calls give the same.
// nullptr: there is none, and *why says so.
const Driver* load_driver(const std::string& path, std::string* why);
// What load_driver gave; throws CudaError before that.
const Driver& driver();
// The same, or nullptr.
const Driver* loaded_driver();

// "4 MiB", "300 bytes"
std::string mebibytes(size_t bytes);
// Of the current context's device: "3 MiB of 143771 MiB are free".
std::string memory_left();

// Throws CudaError: "cuEventRecord: CUDA_ERROR_INVALID_HANDLE (invalid resource handle)". Where a GPU is full, as any
// call may find it, that is said as well.
void check(Result result, const char* call);

#define HVD_CUDA(member, ...) \
  ::hvd::cuda::check(::hvd::cuda::driver().member(__VA_ARGS__), ::hvd::cuda::kCallNames.member)

// The symbols' names, for errors.
struct CallNames {
#define HVD_NAME_CALL(member, symbol, arguments) const char* member = #symbol;
  HVD_DRIVER_CALLS(HVD_NAME_CALL)
#undef HVD_NAME_CALL
};
inline constexpr CallNames kCallNames;

}  // namespace hvd::cuda
