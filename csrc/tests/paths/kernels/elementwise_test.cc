// SPDX-License-Identifier: Apache-2.0
//
// scale, finish, combine, dots and copy_stream against the reference.
#include "tests/check.h"
#include "tests/paths/kernels/buffers.h"
#include "tests/paths/kernels/reference.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

constexpr int kDtypes = 13;
const int kFloating[] = {HVD_FLOAT16, HVD_BFLOAT16, HVD_FLOAT32, HVD_FLOAT64};
const size_t kCounts[] = {0, 1, 3, 16, 31, 64, 100, 777};

}  // namespace

TEST(scale) {
  for_each_level([](const char* level) {
    std::mt19937_64 random(11);
    for (int dtype = 0; dtype < kDtypes; ++dtype) {
      for (size_t count : kCounts) {
        for (double factor : {1.0, 0.5, 3.0, -1.7, 1e-3, 1e40, 0.0}) {
          const size_t bytes = count * item_size(dtype);
          Buffer in(bytes, 4), out(bytes, 1), expected(bytes, 0);
          fill(dtype, in.data(), count, random);
          for (size_t i = 0; i < count; ++i) {
            store(dtype, expected.data(), i, finished(dtype, load(dtype, in.data(), i), factor, 1));
          }
          const Case c(level, dtype_name(dtype), "count", count, "factor", factor);
          kernels::scale(dtype, out.data(), in.data(), count, factor);
          CHECK_EQ(first_difference(dtype, out.data(), expected.data(), count), count);
          CHECK(out.guards_intact());
          kernels::scale(dtype, in.data(), in.data(), count, factor);
          CHECK_EQ(first_difference(dtype, in.data(), expected.data(), count), count);
        }
      }
    }
  });
}

TEST(finish) {
  for_each_level([](const char* level) {
    std::mt19937_64 random(12);
    for (int dtype = 0; dtype < kDtypes; ++dtype) {
      for (size_t count : kCounts) {
        for (auto [postscale, divisor] : {std::pair{1.0, 2}, {1.0, 3}, {1.0, 49}, {1.0, 300}, {0.25, 6}, {2.0, 1}}) {
          const size_t bytes = count * item_size(dtype);
          Buffer data(bytes, 2), expected(bytes, 0);
          fill(dtype, data.data(), count, random);
          for (size_t i = 0; i < count; ++i) {
            store(dtype, expected.data(), i, finished(dtype, load(dtype, data.data(), i), postscale, divisor));
          }
          const Case c(level, dtype_name(dtype), "count", count, "finish", postscale, divisor);
          kernels::finish(dtype, data.data(), count, postscale, divisor);
          CHECK_EQ(first_difference(dtype, data.data(), expected.data(), count), count);
          CHECK(data.guards_intact());
        }
      }
    }
  });
}

// Truncation toward zero, and no multiple coming out one too low.
TEST(integer_average_is_exact) {
  for_each_level([](const char* level) {
    for (int64_t divisor = 1; divisor <= 130; ++divisor) {
      std::vector<int32_t> narrow;
      std::vector<int64_t> wide;
      for (int64_t q = -40; q <= 40; ++q) {
        for (int64_t r : {int64_t(0), divisor - 1, int64_t(1) % divisor}) {
          narrow.push_back(int32_t(q * divisor + r));
          wide.push_back((q << 40) * divisor + r);
        }
      }
      std::vector<int32_t> narrow_out = narrow;
      std::vector<int64_t> wide_out = wide;
      kernels::finish(HVD_INT32, narrow_out.data(), narrow.size(), 1.0, divisor);
      kernels::finish(HVD_INT64, wide_out.data(), wide.size(), 1.0, divisor);
      const Case c(level, "divisor", divisor);
      for (size_t i = 0; i < narrow.size(); ++i) {
        CHECK_EQ(narrow_out[i], narrow[i] / divisor);
        CHECK_EQ(wide_out[i], wide[i] / divisor);
      }
    }
  });
}

TEST(combine) {
  for_each_level([](const char* level) {
    std::mt19937_64 random(13);
    for (int dtype : kFloating) {
      for (size_t count : kCounts) {
        const size_t bytes = count * item_size(dtype);
        Buffer a(bytes, 2), b(bytes, 6), out(bytes, 1), expected(bytes, 0);
        fill(dtype, a.data(), count, random);
        fill(dtype, b.data(), count, random);
        const double ca = 0.75, cb = -0.3;
        for (size_t i = 0; i < count; ++i) {
          const double x = load(dtype, a.data(), i).real, y = load(dtype, b.data(), i).real;
          const float narrow = float(ca) * float(x) + float(cb) * float(y);
          store(dtype, expected.data(), i, {0, dtype == HVD_FLOAT64 ? ca * x + cb * y : double(narrow)});
        }
        const Case c(level, dtype_name(dtype), "count", count);
        kernels::combine(dtype, out.data(), ca, a.data(), cb, b.data(), count);
        CHECK_EQ(first_difference(dtype, out.data(), expected.data(), count), count);
        CHECK(out.guards_intact());
        kernels::combine(dtype, b.data(), ca, a.data(), cb, b.data(), count);
        CHECK_EQ(first_difference(dtype, b.data(), expected.data(), count), count);
      }
    }
  });
}

TEST(dots) {
  for (int dtype : kFloating) {
    for (size_t count : {0, 1, 5, 16, 255, 256, 257, 10001}) {
      std::mt19937_64 random(14);
      const size_t bytes = count * item_size(dtype);
      Buffer a(bytes, 2), b(bytes, 4);
      fill(dtype, a.data(), count, random, false);
      fill(dtype, b.data(), count, random, false);
      double expected[3] = {}, first[3] = {};
      for (size_t i = 0; i < count; ++i) {
        const double x = load(dtype, a.data(), i).real, y = load(dtype, b.data(), i).real;
        expected[0] += x * x;
        expected[1] += x * y;
        expected[2] += y * y;
      }
      for_each_level([&](const char* level) {
        const Case c(level, dtype_name(dtype), "count", count);
        double out[3];
        kernels::dots(dtype, a.data(), b.data(), count, out);
        const bool best = level == kernels::simd_levels()[0];
        for (int k = 0; k < 3; ++k) {
          CHECK(std::fabs(out[k] - expected[k]) <= 1e-12 * (expected[0] + expected[2]));
          if (best) first[k] = out[k];
          CHECK_EQ(out[k], first[k]);  // ranks on different CPUs must agree to the last bit
        }
      });
    }
  }
}

TEST(copy_stream) {
  for_each_level([](const char* level) {
    std::mt19937_64 random(15);
    for (size_t bytes : {0, 1, 63, 64, 4095, 4096, 4097, 5000, 70001}) {
      for (size_t offset : {0, 1, 8, 63}) {
        Buffer in(bytes, 5), out(bytes, offset);
        fill(HVD_UINT8, in.data(), bytes, random);
        const Case c(level, "bytes", bytes, "offset", offset);
        kernels::copy_stream(out.data(), in.data(), bytes);
        CHECK(std::memcmp(out.data(), in.data(), bytes) == 0);
        CHECK(out.guards_intact());
      }
    }
  });
}
