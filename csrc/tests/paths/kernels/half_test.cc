// SPDX-License-Identifier: Apache-2.0
//
// The conversions behind the half types: all 65,536 values in, and every rounding case out.
#include "tests/check.h"
#include "tests/paths/kernels/buffers.h"
#include "tests/paths/kernels/reference.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

const int kHalfTypes[] = {HVD_FLOAT16, HVD_BFLOAT16};

std::vector<uint16_t> every_half() {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = uint16_t(i);
  return all;
}

}  // namespace

TEST(the_reference_decodes_what_it_encodes) {
  for (int dtype : kHalfTypes) {
    for (uint16_t bits : every_half()) {
      const double value = decode_half(half_format(dtype), bits);
      if (!std::isnan(value)) CHECK_EQ(encode_half(half_format(dtype), value), bits);
    }
  }
}

// One source: in and out again, through float32.
TEST(every_value_survives) {
  for_each_level([](const char* level) {
    for (int dtype : kHalfTypes) {
      const std::vector<uint16_t> in = every_half();
      std::vector<uint16_t> out(in.size());
      const void* pointers[] = {in.data()};
      kernels::reduce(dtype, HVD_SUM, out.data(), pointers, 1, in.size());
      const Case c(level, dtype_name(dtype));
      CHECK_EQ(first_difference(dtype, in.data(), out.data(), in.size()), in.size());
    }
  });
}

// a * factor covers all halves times numbers that land on ties, just off them, in the subnormals and beyond
// the range.
TEST(rounds_to_nearest_even) {
  const double kFactors[] = {0.5, 0.25, 1.0 / 1024, 1.0 + 1.0 / 2048, 1.0 + 1.0 / 1024 + 1.0 / (1 << 22), 0.75,
                             3.0, 1e-6, 1e5};
  for_each_level([&](const char* level) {
    for (int dtype : kHalfTypes) {
      const std::vector<uint16_t> in = every_half();
      for (double factor : kFactors) {
        std::vector<uint16_t> out(in.size()), expected(in.size());
        for (size_t i = 0; i < in.size(); ++i) {
          const float exact = float(decode_half(half_format(dtype), in[i])) * float(factor);
          expected[i] = encode_half(half_format(dtype), exact);
        }
        kernels::scale(dtype, out.data(), in.data(), in.size(), factor);
        const Case c(level, dtype_name(dtype), "factor", factor);
        CHECK_EQ(first_difference(dtype, out.data(), expected.data(), in.size()), in.size());
      }
    }
  });
}

TEST(many_sources_round_once) {
  for_each_level([](const char* level) {
    // 2048 + 1 + 1 + ...: adding in float16 would lose every single 1.
    std::vector<uint16_t> big(40, encode_half(kFloat16, 2048)), one(40, encode_half(kFloat16, 1)), out(40);
    std::vector<const void*> pointers(21, one.data());
    pointers[0] = big.data();
    kernels::reduce(HVD_FLOAT16, HVD_SUM, out.data(), pointers.data(), int(pointers.size()), out.size());
    const Case c(level);
    for (uint16_t v : out) CHECK_EQ(decode_half(kFloat16, v), 2068.0);
  });
}
