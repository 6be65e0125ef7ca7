// SPDX-License-Identifier: Apache-2.0
// Device memory of the stand-in: files in memory, which other processes can map. What is freed is taken out of the
// address space, so that whoever uses it afterwards falls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace hvd::standin {

struct MemoryHandle {
  int32_t process;
  int32_t descriptor;
  uint64_t bytes;
};

class Memory {
 public:
  // nullptr: more than there is.
  void* allocate(size_t bytes);
  bool free(void* memory);
  bool share(void* memory, MemoryHandle* handle);
  void* open(const MemoryHandle& handle);
  bool close(void* memory);
  size_t allocated();
  size_t limit = size_t{16} << 30;

 private:
  struct Block {
    size_t bytes;
    int descriptor;
  };
  std::mutex mutex_;
  std::map<void*, Block> blocks_;
  std::map<void*, size_t> opened_;
  size_t allocated_ = 0;
};

}  // namespace hvd::standin
