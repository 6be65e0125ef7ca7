// SPDX-License-Identifier: Apache-2.0
// An allocator for objects that come and go by the dozen, such as what a training step submits. A general allocator
// keeps a handful of each size at hand and puts the others together with their neighbours, to cut them apart again in
// the next step; this one keeps them as they are.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <new>

#include "util/prefetch.h"

namespace hvd {

// Pieces of memory of one size, given back and not yet taken again. Any thread; nobody waits, least of all a forked
// child for a thread that it does not have.
class Spares {
 public:
  // Null: there is none now. The next one, of so many bytes, comes from memory meanwhile: who takes one takes more.
  void* take(size_t bytes) {
    if (busy_.test_and_set(std::memory_order_acquire)) return nullptr;
    void* memory = count_ ? pieces_[--count_] : nullptr;
    const void* next = count_ ? pieces_[count_ - 1] : nullptr;
    busy_.clear(std::memory_order_release);
    if (next) prefetch_to_write(next, bytes);
    return memory;
  }
  // False: there are enough now.
  bool keep(void* memory) {
    if (busy_.test_and_set(std::memory_order_acquire)) return false;
    bool fits = count_ < pieces_.size();
    if (fits) pieces_[count_++] = memory;
    busy_.clear(std::memory_order_release);
    return fits;
  }

 private:
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  size_t count_ = 0;
  std::array<void*, 4096> pieces_;  // a list through the pieces themselves would have to wait for their memory
};

template <typename T>
class Reused {
 public:
  using value_type = T;
  Reused() = default;
  template <typename Other>
  Reused(const Reused<Other>&) {}  // NOLINT(google-explicit-constructor): an allocator is asked for other types
  template <typename Other>
  bool operator==(const Reused<Other>&) const {
    return true;
  }

  T* allocate(size_t n) {
    if (n == 1 && kReuses)
      if (void* memory = spares().take(sizeof(T))) return static_cast<T*>(memory);
    return static_cast<T*>(::operator new(n * sizeof(T)));
  }
  void deallocate(T* memory, size_t n) {
    void* piece = static_cast<void*>(memory);
    if (n == 1 && kReuses && spares().keep(piece)) return;
    ::operator delete(piece);
  }

 private:
// Whoever uses what was given back is to be found out.
#if defined(__SANITIZE_ADDRESS__)
  static constexpr bool kReuses = false;
#else
  static constexpr bool kReuses = true;
#endif
  static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

  // Threads may give something back while the process ends: it is never taken apart.
  static Spares& spares() {
    static Spares& all = *new Spares;
    return all;
  }
};

}  // namespace hvd
