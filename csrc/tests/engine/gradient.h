// SPDX-License-Identifier: Apache-2.0
#ifndef HOROVOD_TESTS_ENGINE_GRADIENT_H_
#define HOROVOD_TESTS_ENGINE_GRADIENT_H_

#include <algorithm>
#include <string>
#include <vector>

#include "horovod/core.h"

namespace hvd::testing {

// Floats under a name, and the request that sums them up in place.
struct Gradient {
  std::string name;
  std::vector<float> data;
  int64_t shape[1];

  Gradient(std::string n, size_t count, float value) : name(std::move(n)), data(count, value), shape{int64_t(count)} {}

  hvd_request request() {
    hvd_request r{};
    r.struct_size = sizeof r;
    r.kind = HVD_ALLREDUCE;
    r.name = name.c_str();
    r.input = r.output = data.data();
    r.shape = shape;
    r.ndim = 1;
    r.dtype = HVD_FLOAT32;
    r.reduce_op = HVD_SUM;
    r.prescale = r.postscale = 1.0;
    r.device = -1;
    return r;
  }
  bool all(float value) const {
    return std::all_of(data.begin(), data.end(), [&](float v) { return v == value; });
  }
};

// Of an operation without a tensor: a barrier, a join.
inline hvd_request bare_request(int kind, const char* name) {
  hvd_request r{};
  r.struct_size = sizeof r;
  r.kind = kind;
  r.name = name;
  r.device = -1;
  return r;
}

}  // namespace hvd::testing

#endif  // HOROVOD_TESTS_ENGINE_GRADIENT_H_
