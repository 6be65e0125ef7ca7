// SPDX-License-Identifier: Apache-2.0
// An allocator for objects that come and go by the dozen, such as what a training step submits. A general allocator
// keeps a handful of each size at hand and puts the others together with their neighbours, to cut them apart again in
// the next step; this one keeps them as they are.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <new>
#include <utility>

#include "util/prefetch.h"

namespace hvd {

// Whoever uses what was given back is to be found out.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kReusesMemory = false;
#else
inline constexpr bool kReusesMemory = true;
#endif

// What was given back and not yet taken again, the last first. Any thread; nobody waits, least of all a forked child
// for a thread that it does not have.
template <typename T, size_t kMost>
class Spares {
 public:
  // False: there is none now. Else `next`, if wanted, is the one that will be taken after this one.
  bool take(T& taken, T* next = nullptr) {
    if (busy_.test_and_set(std::memory_order_acquire)) return false;
    bool found = count_ > 0;
    if (found) std::swap(taken, kept_[--count_]);
    if (next && count_) *next = kept_[count_ - 1];
    busy_.clear(std::memory_order_release);
    return found;
  }
  // False: there are enough now.
  bool keep(T& given) {
    if (busy_.test_and_set(std::memory_order_acquire)) return false;
    bool fits = count_ < kMost;
    if (fits) std::swap(kept_[count_++], given);
    busy_.clear(std::memory_order_release);
    return fits;
  }

 private:
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  size_t count_ = 0;
  std::array<T, kMost> kept_;  // a list through pieces of memory themselves would have to wait for their memory
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
    void* memory = nullptr;
    void* next = nullptr;
    if (n != 1 || !kReusesMemory || !spares().take(memory, &next))
      return static_cast<T*>(::operator new(n * sizeof(T)));
    if (next) prefetch_to_write(next, sizeof(T));  // it comes from memory meanwhile: who takes one takes more
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t n) {
    void* piece = static_cast<void*>(memory);
    if (n == 1 && kReusesMemory && spares().keep(piece)) return;
    ::operator delete(piece);
  }

 private:
  static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

  // Threads may give something back while the process ends: it is never taken apart.
  static Spares<void*, 4096>& spares() {
    static Spares<void*, 4096>& all = *new Spares<void*, 4096>;
    return all;
  }
};

}  // namespace hvd
