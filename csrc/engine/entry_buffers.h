// SPDX-License-Identifier: Apache-2.0
// Where entries keep their names and shapes, one after the other. To write into a buffer that is there costs no wait
// for memory; to get one from a general allocator does, for each, since the list of what it has goes through the memory
// itself, which a training step has long driven out of the caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "paths/tensor.h"
#include "util/reused.h"

namespace hvd {

class EntryBuffers {
 public:
  // Gives a tensor that is about to be described the buffers of an earlier one.
  static void borrow(Tensor& tensor) {
    EntryBuffers buffers;
    if (kReusesMemory && spares().take(buffers)) buffers.swap_with(tensor);
  }
  // Takes them from a tensor that is not needed any more.
  static void give_back(Tensor& tensor) {
    if (!kReusesMemory || tensor.description.name.capacity() > kLongest) return;
    EntryBuffers buffers;
    buffers.swap_with(tensor);
    buffers.name_.clear();
    buffers.agreed_shape_.clear();
    buffers.own_shape_.clear();
    spares().keep(buffers);
  }

 private:
  static constexpr size_t kLongest = 256;  // of a name: few are longer

  void swap_with(Tensor& tensor) {
    std::swap(name_, tensor.description.name);
    std::swap(agreed_shape_, tensor.description.shape);
    std::swap(own_shape_, tensor.shape);
  }
  // Threads may give something back while the process ends: it is never taken apart.
  static Spares<EntryBuffers, 1024>& spares() {
    static Spares<EntryBuffers, 1024>& all = *new Spares<EntryBuffers, 1024>;
    return all;
  }

  std::string name_;
  std::vector<int64_t> agreed_shape_, own_shape_;
};

}  // namespace hvd
