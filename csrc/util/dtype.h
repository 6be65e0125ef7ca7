// SPDX-License-Identifier: Apache-2.0
// Facts about the element types of the header.
#pragma once

#include <cstddef>

#include "horovod/core.h"

namespace hvd {

// Bytes of an element, 0 if there is no such type.
inline size_t item_size(int dtype) {
  switch (dtype) {
    case HVD_UINT8:
    case HVD_INT8:
    case HVD_BOOL: return 1;
    case HVD_UINT16:
    case HVD_INT16:
    case HVD_FLOAT16:
    case HVD_BFLOAT16: return 2;
    case HVD_UINT32:
    case HVD_INT32:
    case HVD_FLOAT32: return 4;
    case HVD_UINT64:
    case HVD_INT64:
    case HVD_FLOAT64: return 8;
    default: return 0;
  }
}

// "float32"
inline const char* dtype_name(int dtype) {
  static const char* const names[] = {"uint8",   "int8",    "uint16", "int16",    "int32",  "int64", "float16",
                                      "float32", "float64", "bool",   "bfloat16", "uint32", "uint64"};
  return item_size(dtype) ? names[dtype] : "unknown";
}

inline bool is_floating(int dtype) {
  return dtype == HVD_FLOAT16 || dtype == HVD_BFLOAT16 || dtype == HVD_FLOAT32 || dtype == HVD_FLOAT64;
}

}  // namespace hvd
