// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace hvd {

inline size_t divide_up(size_t a, size_t b) { return (a + b - 1) / b; }
// E.g. 100 to 64: 128.
inline size_t round_up(size_t a, size_t to) { return divide_up(a, to) * to; }

}  // namespace hvd
