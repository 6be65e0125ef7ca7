// SPDX-License-Identifier: Apache-2.0
//
// What one instruction-set level offers: function pointers by element type. Filled by body.h, used by
// kernels.cc.
#ifndef HOROVOD_PATHS_KERNELS_TABLE_H_
#define HOROVOD_PATHS_KERNELS_TABLE_H_

#include <cstddef>
#include <cstdint>

namespace hvd::kernels {

struct Beside;
struct Finish;

constexpr int kDtypes = 13;  // hvd_dtype
enum OpIndex { kSum, kMin, kMax, kProduct, kOps };

struct ReduceArgs {
  void* dst;  // either may be null
  void* dst2;
  const void* const* srcs;
  int n;
  size_t count;
  const Finish* finish;
  bool stream;
  const Beside* beside;
  uint64_t in_memory;
};

struct Table {
  const char* name;
  void (*reduce[kDtypes][kOps])(const ReduceArgs& args);
  void (*scale[kDtypes])(void* dst, const void* src, size_t count, double factor);
  void (*finish[kDtypes])(void* dst, size_t count, const Finish& finish);
  void (*dots[kDtypes])(const void* a, const void* b, size_t count, double out[3]);  // null: not a float
  void (*combine[kDtypes])(void* dst, double ca, const void* a, double cb, const void* b, size_t count);
  void (*copy_stream)(void* dst, const void* src, size_t bytes);
};

// Null where the compiler was not asked for that level.
const Table* base_table();
const Table* avx2_table();
const Table* avx512_table();

}  // namespace hvd::kernels

#endif  // HOROVOD_PATHS_KERNELS_TABLE_H_
