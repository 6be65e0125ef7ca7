/* SPDX-License-Identifier: Apache-2.0
 *
 * Who owns what, between Python and us. All of it is guarded by the GIL.
 */
#ifndef HOROVOD_GLUE_PYTHON_OWNED_H_
#define HOROVOD_GLUE_PYTHON_OWNED_H_

#include <utility>

#include "glue/python/answers.h"
#include "glue/python/python_abi.h"

namespace hvd::python {

/* A reference to an object of Python's. */
class Ref {
 public:
  Ref() = default;
  explicit Ref(Object* stolen) : object_(stolen) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    Object* before = std::exchange(object_, std::exchange(other.object_, nullptr));
    drop(before); /* may run anything: last */
    return *this;
  }
  ~Ref() { drop(object_); }
  Object* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  Object* object_ = nullptr;
};

template <typename T>
[[gnu::noinline]] void let_go(T* shared) {
  if (--shared->owners == 0) delete shared;
}

/* What several hold, counted in itself, so that a capsule leads to it without a detour. */
template <typename T>
class Shared {
 public:
  Shared() = default;
  explicit Shared(T* shared) : shared_(shared) {
    if (shared) ++shared->owners;
  }
  Shared(const Shared& other) : Shared(other.shared_) {}
  Shared(Shared&& other) noexcept : shared_(std::exchange(other.shared_, nullptr)) {}
  Shared& operator=(Shared other) noexcept {
    std::swap(shared_, other.shared_);
    return *this;
  }
  ~Shared() {
    if (shared_) let_go(shared_);
  }
  T* release() { return std::exchange(shared_, nullptr); }
  T& operator*() const { return *shared_; }
  T* operator->() const { return shared_; }

 private:
  T* shared_ = nullptr;
};

}  // namespace hvd::python

#endif /* HOROVOD_GLUE_PYTHON_OWNED_H_ */
