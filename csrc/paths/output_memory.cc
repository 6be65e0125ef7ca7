// SPDX-License-Identifier: Apache-2.0
#include "paths/output_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "util/round.h"

namespace hvd::output_memory {
namespace {

constexpr size_t kHugePage = 2 << 20;
constexpr size_t kGrain = 64 << 10;  // sizes that differ by less are the same
constexpr size_t kHeader = 64;       // before the caller's memory, which stays as aligned as the block

// How the block begins that a piece of memory lies in.
struct Header {
  size_t mapped;  // bytes of the whole block; 0: it is malloc's
};

struct Block {
  char* base;
  size_t bytes;
};

struct Pool {
  std::mutex mutex;
  size_t most = 0;
  size_t bytes = 0;
  std::vector<Block> unused;  // the longest unused first
};

Pool& pool() {
  static auto* made = new Pool;  // leaked: results may be let go of while the process exits
  return *made;
}

// On a boundary of huge pages, of which the kernel then clears one instead of 512 small ones at a time.
char* map(size_t bytes) {
  size_t room = bytes + kHugePage;
  void* mapped = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* start = static_cast<char*>(mapped);
  size_t before = round_up(reinterpret_cast<uintptr_t>(start), kHugePage) - reinterpret_cast<uintptr_t>(start);
  if (before) munmap(start, before);
  if (size_t after = room - before - bytes) munmap(start + before + bytes, after);
  madvise(start + before, bytes, MADV_HUGEPAGE);
  return start + before;
}

void unmap(const std::vector<Block>& blocks) {
  for (const Block& block : blocks) munmap(block.base, block.bytes);
}

// The smallest unused block that fits and is at most a quarter too large.
Block find(size_t bytes) {
  Pool& p = pool();
  std::lock_guard<std::mutex> lock(p.mutex);
  auto best = p.unused.end();
  for (auto it = p.unused.begin(); it != p.unused.end(); ++it)
    if (it->bytes >= bytes && it->bytes - bytes <= bytes / 4 && (best == p.unused.end() || it->bytes <= best->bytes))
      best = it;
  if (best == p.unused.end()) return {nullptr, 0};
  Block block = *best;
  p.unused.erase(best);
  p.bytes -= block.bytes;
  return block;
}

// Takes out what is over the limit; the caller unmaps it, without the lock.
std::vector<Block> surplus(Pool& p) {
  std::vector<Block> out;
  auto it = p.unused.begin();
  for (; p.bytes > p.most; ++it) {
    p.bytes -= it->bytes;
    out.push_back(*it);
  }
  p.unused.erase(p.unused.begin(), it);
  return out;
}

char* take_block(size_t bytes, size_t* mapped) {
  *mapped = 0;
  if (bytes < kLarge) {
    void* memory = nullptr;
    return posix_memalign(&memory, kHeader, std::max(bytes, kHeader) + kHeader) == 0 ? static_cast<char*>(memory)
                                                                                     : nullptr;
  }
  if (bytes > SIZE_MAX / 2) return nullptr;
  Block block = find(bytes + kHeader);
  if (!block.base) {
    block.bytes = round_up(bytes + kHeader, kGrain);
    block.base = map(block.bytes);
  }
  *mapped = block.bytes;
  return block.base;
}

}  // namespace

void* take(size_t bytes) {
  size_t mapped = 0;
  char* block = take_block(bytes, &mapped);
  if (!block) return nullptr;
  reinterpret_cast<Header*>(block)->mapped = mapped;
  return block + kHeader;
}

void give_back(void* memory) {
  if (!memory) return;
  char* base = static_cast<char*>(memory) - kHeader;
  size_t bytes = reinterpret_cast<Header*>(base)->mapped;
  if (!bytes) return std::free(base);
  madvise(base, bytes, MADV_FREE);
  std::vector<Block> gone;
  {
    Pool& p = pool();
    std::lock_guard<std::mutex> lock(p.mutex);
    p.unused.push_back({base, bytes});
    p.bytes += bytes;
    gone = surplus(p);
  }
  unmap(gone);
}

void keep(size_t most) {
  std::vector<Block> gone;
  {
    Pool& p = pool();
    std::lock_guard<std::mutex> lock(p.mutex);
    p.most = most;
    gone = surplus(p);
  }
  unmap(gone);
}

size_t kept() {
  Pool& p = pool();
  std::lock_guard<std::mutex> lock(p.mutex);
  return p.bytes;
}

void before_fork() { pool().mutex.lock(); }
void after_fork() { pool().mutex.unlock(); }

}  // namespace hvd::output_memory
