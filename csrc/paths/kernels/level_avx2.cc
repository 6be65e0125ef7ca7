// SPDX-License-Identifier: Apache-2.0
//
// AVX2 with F16C. Empty where the compiler is not told to use it: other architectures.
#include "paths/kernels/table.h"

#if defined(__AVX2__)
#include "paths/kernels/body.h"
namespace hvd::kernels {
namespace {
constexpr Table kTable = make_table("avx2");
}  // namespace
const Table* avx2_table() { return &kTable; }
}  // namespace hvd::kernels
#else
namespace hvd::kernels {
const Table* avx2_table() { return nullptr; }
}  // namespace hvd::kernels
#endif
