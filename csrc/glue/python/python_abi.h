/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of Python's C interface that we use, declared by ourselves and found at run time in the interpreter that has
 * loaded us: nothing of Python is needed to compile, nothing is linked, and one library serves every Python from 3.9
 * on.
 *
 * All of it is in the stable ABI (PEP 384) of Python 3.11, and has been there with the same calling convention since
 * 3.9. Interpreters without a GIL have other objects; horovod.common._calls does not ask us to serve them.
 */
#ifndef HOROVOD_GLUE_PYTHON_PYTHON_ABI_H_
#define HOROVOD_GLUE_PYTHON_PYTHON_ABI_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

namespace hvd::python {

struct Object; /* only ever held by a pointer */

/* Py_buffer */
struct Buffer {
  void* buf;
  Object* obj;
  ssize_t len;
  ssize_t itemsize;
  int readonly;
  int ndim;
  char* format; /* as of the struct module, e.g. "f" */
  ssize_t* shape;
  ssize_t* strides;
  ssize_t* suboffsets;
  void* internal;
};
constexpr int kWritable = 0x1;
constexpr int kFormat = 0x4;
constexpr int kContiguous = 0x38; /* PyBUF_C_CONTIGUOUS: shape and strides come with it */

using Function = Object* (*)(Object* self, Object* const* arguments, ssize_t n);

/* PyMethodDef */
struct Method {
  const char* name;
  Function function;
  int flags;
  const char* documentation;
};
constexpr int kFastCall = 0x80; /* METH_FASTCALL: arguments by position, as a C array */

/* Each named as Python names it. */
#define HVD_PYTHON_FUNCTIONS(X)                                         \
  X(PyCFunction_NewEx, Object*, (Method*, Object*, Object*))            \
  X(PyDict_New, Object*, ())                                            \
  X(PyDict_SetItemString, int, (Object*, const char*, Object*))         \
  X(PyObject_CallFunctionObjArgs, Object*, (Object*, ...))              \
  X(PyObject_CallMethodObjArgs, Object*, (Object*, Object*, ...))       \
  X(PyObject_GetAttr, Object*, (Object*, Object*))                      \
  X(Py_BuildValue, Object*, (const char*, ...))                         \
  X(PyCapsule_New, Object*, (void*, const char*, void (*)(Object*)))    \
  X(PyCapsule_GetPointer, void*, (Object*, const char*))                \
  X(PyList_New, Object*, (ssize_t))                                     \
  X(PyList_Append, int, (Object*, Object*))                             \
  X(PyUnicode_InternFromString, Object*, (const char*))                 \
  X(PyObject_GetBuffer, int, (Object*, Buffer*, int))                   \
  X(PyBuffer_Release, void, (Buffer*))                                  \
  X(PyUnicode_AsUTF8AndSize, const char*, (Object*, ssize_t*))          \
  X(PyUnicode_DecodeUTF8, Object*, (const char*, ssize_t, const char*)) \
  X(PyLong_AsLongLong, long long, (Object*))                            \
  X(PyLong_AsVoidPtr, void*, (Object*))                                 \
  X(PyLong_FromLongLong, Object*, (long long))                          \
  X(PyFloat_AsDouble, double, (Object*))                                \
  X(PySequence_Size, ssize_t, (Object*))                                \
  X(PySequence_GetItem, Object*, (Object*, ssize_t))                    \
  X(PyTuple_Size, ssize_t, (Object*))                                   \
  X(PyTuple_GetItem, Object*, (Object*, ssize_t))                       \
  X(PyErr_Occurred, Object*, ())                                        \
  X(PyErr_Clear, void, ())                                              \
  X(PyErr_CheckSignals, int, ())                                        \
  X(PyErr_Fetch, void, (Object**, Object**, Object**))                  \
  X(PyErr_Restore, void, (Object*, Object*, Object*))                   \
  X(PyEval_SaveThread, void*, ())                                       \
  X(PyEval_RestoreThread, void, (void*))                                \
  X(Py_IncRef, void, (Object*))                                         \
  X(Py_DecRef, void, (Object*))

struct Api {
#define HVD_PYTHON_MEMBER(name, result, arguments) result(*name) arguments;
  HVD_PYTHON_FUNCTIONS(HVD_PYTHON_MEMBER)
#undef HVD_PYTHON_MEMBER
  Object* none;            /* _Py_NoneStruct */
  Object* not_implemented; /* _Py_NotImplementedStruct */
};

}  // namespace hvd::python

#endif /* HOROVOD_GLUE_PYTHON_PYTHON_ABI_H_ */
