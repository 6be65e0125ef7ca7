// SPDX-License-Identifier: Apache-2.0
//
// reduce and reduce2 against the reference: dtype x op x number of sources x size x alignment x level.
#include <cstring>

#include "tests/check.h"
#include "tests/paths/kernels/buffers.h"
#include "tests/paths/kernels/reference.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

const int kOperators[] = {HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT};
constexpr int kDtypes = 13;

// The half types are rounded once, at the end, so partial results must not pass through the type.
void expect(int dtype, int op, void* out, const std::vector<Buffer>& sources, size_t count, const kernels::Finish& f) {
  for (size_t i = 0; i < count; ++i) {
    Number acc = load(dtype, sources[0].data(), i);
    for (size_t s = 1; s < sources.size(); ++s) acc = apply(dtype, op, acc, load(dtype, sources[s].data(), i));
    if (!is_floating(dtype)) {  // wraps before it is finished
      uint64_t wrapped = 0;
      store(dtype, &wrapped, 0, acc);
      acc = load(dtype, &wrapped, 0);
    }
    if (f.postscale != 1.0 || f.divisor != 1) acc = finished(dtype, acc, f.postscale, f.divisor);
    store(dtype, out, i, acc);
  }
}

struct Point {
  int dtype, op, n;
  size_t count, offset;
  bool in_place = false, second = false;
  kernels::Finish finish = {};
  bool beside = false, in_memory = false;
};

void check_point(const Point& p, std::mt19937_64& random) {
  const size_t bytes = p.count * item_size(p.dtype);
  std::vector<Buffer> sources;
  std::vector<const void*> pointers;
  for (int s = 0; s < p.n; ++s) {
    sources.emplace_back(bytes, (p.offset * (s + 1)) % 64);
    fill(p.dtype, sources[s].data(), p.count, random);
  }
  for (Buffer& b : sources) pointers.push_back(b.data());
  Buffer expected(bytes, 0), out(bytes, p.offset % 64), second(bytes, (p.offset * 3) % 64);
  expect(p.dtype, p.op, expected.data(), sources, p.count, p.finish);

  Buffer copied(bytes, (p.offset * 5) % 64), copy(bytes, (p.offset * 7) % 64);
  for (size_t i = 0; i < bytes; ++i) static_cast<char*>(copied.data())[i] = char(random());
  kernels::Beside beside;
  if (p.beside) beside = {copied.data(), copy.data(), p.in_memory};

  Buffer& dst = p.in_place ? sources[p.n - 1] : out;
  if (p.second || p.beside || p.in_memory || p.finish.divisor != 1 || p.finish.postscale != 1.0) {
    kernels::reduce2(p.dtype, p.op, dst.data(), p.second ? second.data() : nullptr, pointers.data(), p.n, p.count,
                     p.finish, true, beside, p.in_memory ? ~uint64_t{2} : 0);
  } else {
    kernels::reduce(p.dtype, p.op, dst.data(), pointers.data(), p.n, p.count);
  }
  const Case c(kernels::simd_level(), dtype_name(p.dtype), "op", p.op, "n", p.n, "count", p.count, "offset", p.offset,
               p.in_place ? "in place" : "", p.second ? "two outputs" : "", p.beside ? "beside" : "",
               p.in_memory ? "in memory" : "", "finish", p.finish.postscale, p.finish.divisor);
  CHECK_EQ(first_difference(p.dtype, dst.data(), expected.data(), p.count), p.count);
  CHECK(dst.guards_intact());
  if (p.second) {
    CHECK_EQ(first_difference(p.dtype, second.data(), expected.data(), p.count), p.count);
    CHECK(second.guards_intact());
  }
  if (p.beside) {
    CHECK(std::memcmp(copy.data(), copied.data(), bytes) == 0);
    CHECK(copy.guards_intact());
  }
}

template <class F>
void for_each_type_and_op(const F& body) {
  for_each_level([&](const char*) {
    std::mt19937_64 random(7);
    for (int dtype = 0; dtype < kDtypes; ++dtype) {
      for (int op : kOperators) body(dtype, op, random);
    }
  });
}

}  // namespace

TEST(sizes_and_sources) {
  for_each_type_and_op([](int dtype, int op, std::mt19937_64& random) {
    for (int n : {1, 2, 3, 5, 8, 9, 17, 33}) {
      for (size_t count : {0, 1, 2, 3, 7, 15, 16, 17, 63, 64, 65, 127, 256, 257, 1000}) {
        check_point({dtype, op, n, count, 0}, random);
      }
    }
  });
}

TEST(large_enough_to_need_several_blocks) {
  for_each_type_and_op(
      [](int dtype, int op, std::mt19937_64& random) { check_point({dtype, op, 11, 40003, 0, false, true}, random); });
}

TEST(misaligned) {
  for_each_type_and_op([](int dtype, int op, std::mt19937_64& random) {
    const size_t item = item_size(dtype);
    for (size_t offset : {size_t(1), item, 3 * item, size_t(33)}) {
      for (int n : {2, 3, 10}) check_point({dtype, op, n, 531, offset, false, true}, random);
    }
  });
}

TEST(in_place) {
  for_each_type_and_op([](int dtype, int op, std::mt19937_64& random) {
    for (int n : {1, 2, 4, 12}) {
      for (size_t count : {size_t(5), size_t(600)}) check_point({dtype, op, n, count, 8, true, true}, random);
    }
  });
}

TEST(second_output_written_around_the_cache) {
  for_each_type_and_op([](int dtype, int op, std::mt19937_64& random) {
    const size_t item = item_size(dtype);
    for (size_t offset : {size_t(0), item, 5 * item, size_t(1)}) {
      for (size_t bytes : {4096, 4097, 9001}) {
        check_point({dtype, op, 2, bytes / item + 1, offset, false, true}, random);
      }
    }
  });
}

TEST(memory_copied_beside) {
  for_each_type_and_op([](int dtype, int op, std::mt19937_64& random) {
    const size_t item = item_size(dtype);
    for (int n : {1, 2, 3, 9}) {
      for (size_t offset : {size_t(0), item, 5 * item, size_t(1)}) {
        for (size_t bytes : {1, 700, 4096, 9001}) {
          for (bool around : {false, true}) {
            for (bool second : {false, true}) {
              check_point({dtype, op, n, bytes / item + 1, offset, false, second, {}, true, around}, random);
            }
            check_point({dtype, op, n, bytes / item + 1, offset, true, false, {}, true, around}, random);
          }
        }
      }
    }
  });
}

TEST(sources_that_are_asked_for_ahead) {
  for_each_type_and_op([](int dtype, int op, std::mt19937_64& random) {
    for (int n : {1, 2, 3, 9, 70}) {
      check_point({dtype, op, n, 20003 / item_size(dtype), 1, false, true, {}, false, true}, random);
    }
  });
}

TEST(finished_in_the_same_pass) {
  const kernels::Finish kFinishes[] = {{1.0, 2}, {1.0, 3}, {1.0, 49}, {1.0, 1000},
                                       {0.5, 1}, {3.0, 7}, {-2.5, 4}, {0.0, 1}};
  for_each_type_and_op([&](int dtype, int op, std::mt19937_64& random) {
    for (const kernels::Finish& f : kFinishes) {
      for (size_t count : {size_t(9), size_t(1100)}) check_point({dtype, op, 3, count, 0, false, true, f}, random);
    }
  });
}

TEST(half_average_may_exceed_the_range_in_between) {
  for_each_level([](const char*) {
    const uint16_t big = encode_half(kFloat16, 60000.0);
    const std::vector<uint16_t> source(100, big);
    std::vector<uint16_t> out(100);
    const void* pointers[] = {source.data(), source.data(), source.data()};
    kernels::reduce2(HVD_FLOAT16, HVD_AVERAGE, out.data(), nullptr, pointers, 3, 100, {1.0, 3});
    for (uint16_t v : out) CHECK_EQ(v, big);
  });
}
