/* SPDX-License-Identifier: Apache-2.0
 *
 * What a call gives back to Python.
 */
#ifndef HOROVOD_GLUE_PYTHON_ANSWERS_H_
#define HOROVOD_GLUE_PYTHON_ANSWERS_H_

#include <cstring>

#include "glue/python/arguments.h"
#include "glue/python/python_abi.h"
#include "horovod/core.h"

namespace hvd::python {

inline Object* raise_for = nullptr;   /* horovod.common.exceptions.raise_for, set once by hvd_python_calls */
inline Object* abandon = nullptr;     /* horovod.common.abandoned.abandon, the same */
inline constexpr double kSlice = 0.2; /* s; a wait looks for signals this often */

inline Object* kept(Object* object) {
  py.Py_IncRef(object);
  return object;
}

inline void drop(Object* object) {
  if (object) py.Py_DecRef(object);
}

/* The general way has the words for it. */
inline Object* unusual() { return kept(py.not_implemented); }

/* Raises the exception of a status, with hvd_last_error's text. */
inline Object* fail(int64_t status) {
  const char* text = hvd_last_error();
  Object* code = py.PyLong_FromLongLong(status);
  Object* reason = py.PyUnicode_DecodeUTF8(text, static_cast<ssize_t>(std::strlen(text)), "replace");
  Object* result = code && reason ? py.PyObject_CallFunctionObjArgs(raise_for, code, reason, nullptr) : nullptr;
  for (Object* object : {code, reason, result}) drop(object);
  return nullptr;
}

/* hvd_submit of requests of one kind of memory; negative: the status. */
inline int64_t submit(const hvd_request* requests, int32_t n, uint32_t flags) {
  void* thread = requests->device >= 0 ? py.PyEval_SaveThread() : nullptr; /* the device's library may take its time */
  int64_t handle = hvd_submit(requests, n, flags, nullptr, nullptr, nullptr);
  if (thread) py.PyEval_RestoreThread(thread);
  return handle;
}

}  // namespace hvd::python

#endif /* HOROVOD_GLUE_PYTHON_ANSWERS_H_ */
