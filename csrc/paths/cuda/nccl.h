// SPDX-License-Identifier: Apache-2.0
// NCCL, found at run time: the one the framework has loaded, else one named by a path, else the system's.
#pragma once

#include <string>

#include "paths/cuda/nccl_abi.h"

namespace hvd::cuda {

struct Nccl {
#define HVD_DECLARE(member, symbol, arguments) NcclResult(*member) arguments = nullptr;
  HVD_NCCL_CALLS(HVD_DECLARE)
#undef HVD_DECLARE
  // From 2.18 on, else nullptr: (parent, color, key, child, configuration).
  NcclResult (*split)(NcclComm, int, int, NcclComm*, NcclConfig*) = nullptr;
  const char* (*error_string)(NcclResult) = nullptr;
  const char* (*last_error)(NcclComm) = nullptr;
  int version = 0;     // e.g. 22809
  std::string path;    // of the library, e.g. /usr/lib/x86_64-linux-gnu/libnccl.so.2
  std::string origin;  // "loaded by the framework", "given" or "found in the system"

  std::string version_text() const;  // "2.28.9"
};

// Once a process: later calls give the same. `path`: a library to open if none is loaded, may be empty. nullptr: there
// is none of use, and *why says so.
const Nccl* load_nccl(const std::string& path, std::string* why);

// What load_nccl gave, or nullptr.
const Nccl* loaded_nccl();

// What went wrong in words, with NCCL's own text and the next step.
std::string describe_nccl(const Nccl& nccl, NcclResult result, const char* call, const std::string& last_error);

}  // namespace hvd::cuda
