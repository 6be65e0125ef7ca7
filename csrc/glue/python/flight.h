/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradients of one optimizer, as their hooks in C see them.
 */
#ifndef HOROVOD_GLUE_PYTHON_FLIGHT_H_
#define HOROVOD_GLUE_PYTHON_FLIGHT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "glue/python/dlpack_abi.h"
#include "glue/python/owned.h"
#include "glue/python/python_abi.h"
#include "horovod/core.h"

namespace hvd::python {

struct Gradient;

/* Dropped while gradients are under way, it keeps itself and them: the engine may still write to their memory. */
struct Flight {
  int owners = 0;
  bool open = false;
  const DlExchange* exchange = nullptr;
  int64_t task = -1;       /* the backward whose end is awaited already */
  int64_t unannounced = 0; /* bytes since the engine's thread was last woken */
  Ref current_task, begin;
  std::vector<Shared<Gradient>> ready; /* not submitted */
  std::vector<Shared<Gradient>> sent;
  size_t finished = 0; /* of `sent`, from the front: an interrupted wait is taken up again */
};

inline constexpr int kMostDimensions = 8;

/* In the order in which a hook needs it: it all comes from memory. */
struct alignas(64) Gradient {
  int owners = 0;
  bool prepared = false;
  uint8_t kind = 0, bits = 0; /* of DLPack */
  Shared<Flight> flight;
  Ref grad;   /* under way, */
  Ref memory; /* and what it points to: users may do `grad.data = other` */
  int64_t bytes = 0, enough = 0;
  int64_t handle = 0;
  int64_t shape[kMostDimensions] = {};
  hvd_request request{};
  int64_t number = 0; /* the optimizer's */
  Ref general;
  std::string name;

  /* One wait for memory instead of one a line. */
  void prefetch() const {
    const char* first = reinterpret_cast<const char*>(this);
    for (size_t at = 64; at < sizeof *this; at += 64) __builtin_prefetch(first + at, 1);
  }
};

inline constexpr char kFlight[] = "hvd_flight";
inline constexpr char kGradient[] = "hvd_gradient";  /* the optimizer's end */
inline constexpr char kHook[] = "hvd_gradient_hook"; /* torch's end */

/* ---------------------------------------------------------------------------------------------------- capsules -- */

/* Null with an error of Python's set: it is another object. */
template <typename T>
T* held(Object* capsule, const char* name) {
  return static_cast<T*>(py.PyCapsule_GetPointer(capsule, name));
}

/* The optimizer has let go of it: its hook does nothing by itself any more. */
inline void forget_gradient(Object* capsule) {
  auto* gradient = held<Gradient>(capsule, kGradient);
  gradient->prepared = false;
  let_go(gradient);
}

inline void forget_hook(Object* capsule) { let_go(held<Gradient>(capsule, kHook)); }
inline void forget_flight(Object* capsule) { let_go(held<Flight>(capsule, kFlight)); }

/* A capsule that owns, too. */
template <typename T>
Object* capsule_of(Shared<T> shared, const char* name, void (*forget)(Object*)) {
  Object* capsule = py.PyCapsule_New(&*shared, name, forget);
  if (capsule) shared.release();
  return capsule;
}

/* Of the first argument; null with an error of Python's set. */
inline Flight* flight_of(Object* const* arguments, ssize_t n) {
  return held<Flight>(n > 0 ? arguments[0] : py.none, kFlight);
}

}  // namespace hvd::python

#endif /* HOROVOD_GLUE_PYTHON_FLIGHT_H_ */
