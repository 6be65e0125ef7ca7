/* SPDX-License-Identifier: Apache-2.0
 *
 * What Python hands over, as the C header wants it. Nothing here leaves an error of Python's behind: what is not usual
 * goes another way, which has the words for it.
 */
#ifndef HOROVOD_GLUE_PYTHON_ARGUMENTS_H_
#define HOROVOD_GLUE_PYTHON_ARGUMENTS_H_

#include <climits>
#include <cstring>
#include <string>
#include <string_view>

#include "glue/python/python_abi.h"
#include "horovod/core.h"

namespace hvd::python {

inline Api py; /* filled once by hvd_python_calls */

/* Converts a whole call's arguments; one that does not fit makes the call unusual. */
class Reader {
 public:
  Reader(Object* const* arguments, ssize_t n) : at_(arguments), end_(arguments + n) {}

  bool more() const { return at_ < end_; }
  Object* object() { return more() ? *at_++ : nullptr; }
  int32_t int32() {
    Object* value = object();
    long long number = value ? py.PyLong_AsLongLong(value) : 0;
    if (number < INT_MIN || number > INT_MAX) fits_ = false;
    return static_cast<int32_t>(number);
  }
  int64_t handle() {
    Object* value = object();
    return value ? py.PyLong_AsLongLong(value) : 0;
  }
  void* address() {
    Object* value = object();
    return value ? py.PyLong_AsVoidPtr(value) : nullptr;
  }
  double real() {
    Object* value = object();
    return value ? py.PyFloat_AsDouble(value) : 0;
  }
  /* Valid as long as the object. */
  std::string_view text() {
    Object* value = object();
    if (!value || value == py.none) {
      fits_ = false;
      return {};
    }
    ssize_t n = 0;
    const char* text = py.PyUnicode_AsUTF8AndSize(value, &n);
    if (!text) return {};
    if (std::memchr(text, 0, static_cast<size_t>(n))) fits_ = false;
    return {text, static_cast<size_t>(n)};
  }
  /* Everything was read, and fits. Any error of Python's is gone afterwards. */
  bool usual() {
    if (py.PyErr_Occurred()) {
      py.PyErr_Clear();
      return false;
    }
    return fits_ && at_ == end_;
  }

 private:
  Object* const* at_;
  Object* const* end_;
  bool fits_ = true;
};

/* hvd_dtype of a format of the struct module, or -1. */
inline int32_t dtype_of(const char* format, ssize_t itemsize) {
  if (!format || !format[0] || format[1]) return -1;
  switch (format[0]) {
    case '?': return HVD_BOOL;
    case 'e': return HVD_FLOAT16;
    case 'f': return HVD_FLOAT32;
    case 'd': return HVD_FLOAT64;
    case 'b': return HVD_INT8;
    case 'B': return HVD_UINT8;
    case 'h': return HVD_INT16;
    case 'H': return HVD_UINT16;
    case 'i':
    case 'l':
    case 'q': return itemsize == 8 ? HVD_INT64 : HVD_INT32;
    case 'I':
    case 'L':
    case 'Q': return itemsize == 8 ? HVD_UINT64 : HVD_UINT32;
    default: return -1;
  }
}

/* The memory of an object with a buffer, until the end of the scope. */
class Memory {
 public:
  Memory(Object* object, bool writable) {
    held_ = object && py.PyObject_GetBuffer(object, &buffer_, kContiguous | kFormat | (writable ? kWritable : 0)) == 0;
    if (!held_) py.PyErr_Clear();
  }
  Memory(Memory&& other) noexcept : buffer_(other.buffer_), held_(other.held_) { other.held_ = false; }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (held_) py.PyBuffer_Release(&buffer_);
  }
  bool held() const { return held_; }
  const Buffer& operator*() const { return buffer_; }

 private:
  Buffer buffer_{};
  bool held_;
};

static_assert(sizeof(ssize_t) == sizeof(int64_t));

/* An array and where its result goes; the same object twice is in place. */
class Pair {
 public:
  Pair(Object* array, Object* output)
      : input_(array, array == output), output_(array == output ? nullptr : output, true) {
    in_place_ = array == output;
  }
  /* False: not memory that can be handed over as it is. */
  bool fill(hvd_request* request) const {
    if (!input_.held() || (!in_place_ && !output_.held())) return false;
    const Buffer& in = *input_;
    if (!in_place_ && (*output_).len != in.len) return false;
    request->dtype = dtype_of(in.format, in.itemsize);
    request->shape = reinterpret_cast<const int64_t*>(in.shape);
    request->ndim = in.ndim;
    request->input = in.buf;
    request->output = in_place_ ? in.buf : (*output_).buf;
    return request->dtype >= 0;
  }

 private:
  Memory input_;
  Memory output_;
  bool in_place_;
};

/* What a call says beside its memory. */
struct What {
  hvd_request request{};
  std::string name; /* "allreduce.weight" */

  void read(Reader* reader) {
    request.struct_size = sizeof request;
    request.device = -1;
    request.kind = reader->int32();
    std::string_view prefix = reader->text();
    std::string_view own = reader->text();
    name.reserve(prefix.size() + own.size() + 24); /* also for a member's number */
    name.append(prefix).append(1, '.').append(own);
    request.process_set = reader->int32();
    request.reduce_op = reader->more() ? reader->int32() : static_cast<int32_t>(HVD_SUM);
    request.prescale = reader->more() ? reader->real() : 1.0;
    request.postscale = reader->more() ? reader->real() : 1.0;
    request.root = reader->more() ? reader->int32() : -1;
  }
};

}  // namespace hvd::python

#endif /* HOROVOD_GLUE_PYTHON_ARGUMENTS_H_ */
