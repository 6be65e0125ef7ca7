// SPDX-License-Identifier: Apache-2.0
//
// The level every CPU of the architecture has: SSE2 on x86-64, NEON on arm64.
#include "paths/kernels/body.h"

namespace hvd::kernels {
namespace {
#if defined(__x86_64__)
constexpr Table kTable = make_table("sse2");
#elif defined(__aarch64__)
constexpr Table kTable = make_table("neon");
#else
constexpr Table kTable = make_table("scalar");
#endif
}  // namespace
const Table* base_table() { return &kTable; }
}  // namespace hvd::kernels
