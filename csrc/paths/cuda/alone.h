// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "paths/cuda/convert.h"
#include "paths/cuda/group.h"

namespace hvd::cuda {

class Alone : public Group {
 public:
  explicit Alone(Converter& converter) : Group(0, 1), converter_(converter) {}
  const char* name() const override { return "alone"; }
  bool any_stream() const override { return true; }
  void all_reduce(const Reduce& how, const void* in, void* out, size_t count, Stream stream) override;
  void reduce_scatter(const Reduce& how, const void* in, void* out, const std::vector<size_t>& begins,
                      const std::vector<size_t>& counts, Stream stream) override;
  void all_gather(const void* in, char* out, const std::vector<size_t>& begins, const std::vector<size_t>& bytes,
                  Stream stream) override;
  void broadcast(const void* in, void* out, size_t bytes, int root, Stream stream) override;
  void all_to_all(const char* in, char* out, const std::vector<size_t>& bytes, Stream stream) override;

 private:
  static void copy(const void* in, void* out, size_t bytes, Stream stream);
  Converter& converter_;
};

}  // namespace hvd::cuda
