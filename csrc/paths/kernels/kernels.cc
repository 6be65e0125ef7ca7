// SPDX-License-Identifier: Apache-2.0
//
// Chooses a level once and forwards to it.
#include "paths/kernels/kernels.h"

#include <atomic>
#include <cstring>

#include "horovod/core.h"
#include "paths/kernels/cpu.h"
#include "paths/kernels/table.h"

namespace hvd::kernels {
namespace {

// The levels this CPU can run, best first, ended by null.
struct Levels {
  const Table* tables[4] = {};
  const char* names[4] = {};

  Levels() {
    const Cpu cpu = this_cpu();
    int n = 0;
    if (cpu.avx512 && avx512_table()) tables[n++] = avx512_table();
    if (cpu.avx2 && avx2_table()) tables[n++] = avx2_table();
    tables[n++] = base_table();
    for (int i = 0; i < n; ++i) names[i] = tables[i]->name;
  }
};

const Levels& levels() {
  static const Levels found;
  return found;
}

std::atomic<const Table*>& chosen() {
  static std::atomic<const Table*> table{levels().tables[0]};
  return table;
}

const Table& table() { return *chosen().load(std::memory_order_relaxed); }

OpIndex op_index(int op) {
  switch (op) {
    case HVD_MIN: return kMin;
    case HVD_MAX: return kMax;
    case HVD_PRODUCT: return kProduct;
    default: return kSum;  // also what average and Adasum start from
  }
}

}  // namespace

void reduce(int dtype, int op, void* dst, const void* const* srcs, int n, size_t count) {
  reduce2(dtype, op, dst, nullptr, srcs, n, count);
}

void reduce2(int dtype, int op, void* dst, void* dst2, const void* const* srcs, int n, size_t count,
             const Finish& finish, bool stream, const Beside& beside, uint64_t in_memory) {
  if (count) table().reduce[dtype][op_index(op)]({dst, dst2, srcs, n, count, &finish, stream, &beside, in_memory});
}

void scale(int dtype, void* dst, const void* src, size_t count, double factor) {
  if (count) table().scale[dtype](dst, src, count, factor);
}

void finish(int dtype, void* dst, size_t count, double postscale, int64_t divisor) {
  if (count) table().finish[dtype](dst, count, {postscale, divisor});
}

void copy_stream(void* dst, const void* src, size_t bytes) {
  if (bytes) table().copy_stream(dst, src, bytes);
}

void dots(int dtype, const void* a, const void* b, size_t count, double out[3]) {
  table().dots[dtype](a, b, count, out);
}

void combine(int dtype, void* dst, double ca, const void* a, double cb, const void* b, size_t count) {
  if (count) table().combine[dtype](dst, ca, a, cb, b, count);
}

const char* simd_level() { return table().name; }

const char* const* simd_levels() { return levels().names; }

bool use_simd_level(const char* name) {
  for (const Table* const* t = levels().tables; *t; ++t) {
    if (std::strcmp((*t)->name, name) == 0) {
      chosen().store(*t, std::memory_order_relaxed);
      return true;
    }
  }
  return false;
}

}  // namespace hvd::kernels
