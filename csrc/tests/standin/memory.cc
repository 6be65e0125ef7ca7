// SPDX-License-Identifier: Apache-2.0
#include "tests/standin/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace hvd::standin {
namespace {

constexpr unsigned char kPoison = 0xab;  // what new memory holds: nobody may count on zeros

size_t whole_pages(size_t bytes) { return (bytes + 4095) & ~size_t{4095}; }

}  // namespace

void* Memory::allocate(size_t bytes) {
  size_t size = whole_pages(bytes);
  std::lock_guard<std::mutex> lock(mutex_);
  if (allocated_ + size > limit) return nullptr;
  int fd = memfd_create("standin-gpu", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0) return nullptr;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  std::memset(memory, kPoison, bytes < 4096 ? bytes : 4096);  // enough to be noticed, and large ones stay cheap
  blocks_[memory] = {size, fd};
  allocated_ += size;
  return memory;
}

bool Memory::free(void* memory) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = blocks_.find(memory);
  if (it == blocks_.end()) return false;
  mmap(memory, it->second.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  ::close(it->second.descriptor);
  allocated_ -= it->second.bytes;
  blocks_.erase(it);
  return true;
}

bool Memory::share(void* memory, MemoryHandle* handle) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = blocks_.find(memory);
  if (it == blocks_.end()) return false;
  *handle = {getpid(), it->second.descriptor, it->second.bytes};
  return true;
}

void* Memory::open(const MemoryHandle& handle) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.process, handle.descriptor);
  int fd = ::open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* memory = mmap(nullptr, handle.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED) return nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  opened_[memory] = handle.bytes;
  return memory;
}

bool Memory::close(void* memory) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = opened_.find(memory);
  if (it == opened_.end()) return false;
  munmap(memory, it->second);
  opened_.erase(it);
  return true;
}

size_t Memory::allocated() {
  std::lock_guard<std::mutex> lock(mutex_);
  return allocated_;
}

}  // namespace hvd::standin
