// SPDX-License-Identifier: Apache-2.0
//
// AVX-512 F, BW, DQ and VL. Empty where the compiler is not told to use it: other architectures.
#include "paths/kernels/table.h"

#if defined(__AVX512BW__)
#include "paths/kernels/body.h"
namespace hvd::kernels {
namespace {
constexpr Table kTable = make_table("avx512");
}  // namespace
const Table* avx512_table() { return &kTable; }
}  // namespace hvd::kernels
#else
namespace hvd::kernels {
const Table* avx512_table() { return nullptr; }
}  // namespace hvd::kernels
#endif
