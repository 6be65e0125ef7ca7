/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of every step as functions of Python itself. ctypes takes longer to convert the arguments of a call than
 * the engine takes for a small tensor; these take a tenth of a microsecond.
 *
 *   run_array, start_array    (array, output, ...)                  NumPy: anything with a buffer
 *   run_memory                (keep, dtype, shape, input, output, ..., device = -1, stream = 0)
 *                             raw memory, which `keep` owns; a device's is waited for by the stream
 *   run_arrays, start_arrays  (arrays, outputs, ...)                an atomic group
 *   start_standing            (requests, n, flags)                  hvd_submit of a C array that Python keeps
 *   wait, finish, poll, release (handle)
 *   new_flight, ...           hooks of gradients: gradients.h
 *
 * `...` is (kind, prefix, name, process_set, op = Sum, prescale = 1, postscale = 1, root = -1): the call goes by the
 * name "prefix.name".
 *
 * run_* return None when the result is there, start_* a handle. Both return NotImplemented for whatever is not the
 * usual case (another kind of object, a strided array, an unnamed call, a number that does not fit): nothing was
 * submitted, and the general way in Python has the words for what is wrong. A run that takes long looks for signals now
 * and then; when the handler of one raises, the arguments are left with `abandon(handle, ...)`, since the engine goes
 * on to use their memory. Failures are raised by `raise_for(status, text)`.
 *
 * Who submits memory of the host holds the GIL: the engine waits for nothing there. Who waits does not.
 */
#include <dlfcn.h>

#include <string>
#include <vector>

#include "glue/python/answers.h"
#include "glue/python/arguments.h"
#include "glue/python/gradients.h"
#include "glue/python/python_abi.h"
#include "horovod/core.h"

namespace hvd::python {
namespace {

/* How a wait ended, if not well: with an error of Python's set. */
enum class Waited { kDone, kFailed, kInterrupted };

/* Until it is there, a slice at a time. */
Waited wait_for(int64_t handle, bool let_go) {
  for (;;) {
    if (py.PyErr_CheckSignals() != 0) return Waited::kInterrupted;
    void* thread = py.PyEval_SaveThread();
    int32_t status = let_go ? hvd_finish(handle, kSlice) : hvd_wait(handle, kSlice);
    py.PyEval_RestoreThread(thread);
    if (status == HVD_OK) return Waited::kDone;
    if (status != HVD_TIMEOUT) {
      fail(status);
      return Waited::kFailed;
    }
  }
}

/* Ends a run that was not done in time. The engine may use the memory of `first` and `second` after this. */
Object* finish(int64_t handle, Object* first, Object* second) {
  Waited waited = wait_for(handle, true);
  if (waited == Waited::kDone) return kept(py.none);
  if (waited == Waited::kInterrupted) {
    Object *type, *value, *trace;
    py.PyErr_Fetch(&type, &value, &trace);
    Object* number = py.PyLong_FromLongLong(handle);
    drop(number ? py.PyObject_CallFunctionObjArgs(abandon, number, first, second, nullptr) : nullptr);
    drop(number);
    py.PyErr_Restore(type, value, trace); /* also in place of an error of abandon's */
  }
  return nullptr;
}

Object* run(const hvd_request* requests, int32_t n, Object* first, Object* second) {
  /* A rank alone whose tensor stays where it is has the result sooner than it lets go of the GIL and takes it again. */
  bool stays = requests->input == requests->output && requests->prescale == 1.0 && requests->postscale == 1.0;
  bool waits = hvd_size() != 1 || !stays || requests->device >= 0;
  void* thread = waits ? py.PyEval_SaveThread() : nullptr;
  int64_t left = hvd_call(requests, n, waits ? kSlice : 0);
  if (waits) py.PyEval_RestoreThread(thread);
  if (left > 0) return finish(left, first, second);
  return left == HVD_OK ? kept(py.none) : fail(left);
}

Object* start(const hvd_request* requests, int32_t n, uint32_t flags) {
  int64_t handle = submit(requests, n, flags);
  return handle > 0 ? py.PyLong_FromLongLong(handle) : fail(handle);
}

/* --------------------------------------------------------------------------------------------------- the calls -- */

template <bool kRun>
Object* array(Object*, Object* const* arguments, ssize_t n) {
  Reader reader(arguments, n);
  Object* given = reader.object();
  Object* output = reader.object();
  What what;
  what.read(&reader);
  if (!reader.usual()) return unusual();
  Pair pair(given, output);
  if (!pair.fill(&what.request)) return unusual();
  what.request.name = what.name.c_str();
  return kRun ? run(&what.request, 1, given, output) : start(&what.request, 1, 0);
}

Object* run_memory(Object*, Object* const* arguments, ssize_t n) {
  constexpr ssize_t kMostDimensions = 8;
  int64_t shape[kMostDimensions];
  Reader reader(arguments, n);
  Object* keep = reader.object();
  What what;
  what.request.dtype = reader.int32();
  Object* sizes = reader.object();
  what.request.input = reader.address();
  what.request.output = reader.address();
  what.read(&reader);
  if (reader.more()) what.request.device = reader.int32();
  if (reader.more()) what.request.stream = reader.address();
  ssize_t dimensions = sizes ? py.PyTuple_Size(sizes) : -1;
  for (ssize_t i = 0; i < dimensions && i < kMostDimensions; ++i)
    shape[i] = py.PyLong_AsLongLong(py.PyTuple_GetItem(sizes, i));
  if (!reader.usual() || dimensions < 0 || dimensions > kMostDimensions) return unusual();
  what.request.shape = shape;
  what.request.ndim = static_cast<int32_t>(dimensions);
  what.request.name = what.name.c_str();
  return run(&what.request, 1, keep, py.none);
}

/* Members are called "prefix.name_1of107". */
std::string member_name(const std::string& base, size_t index, size_t count) {
  return base + "_" + std::to_string(index + 1) + "of" + std::to_string(count);
}

template <bool kRun>
Object* arrays(Object*, Object* const* arguments, ssize_t n) {
  Reader reader(arguments, n);
  Object* given = reader.object();
  Object* outputs = reader.object();
  What what;
  what.read(&reader);
  if (!reader.usual()) return unusual();
  ssize_t count = py.PySequence_Size(given);
  if (count < 1 || py.PySequence_Size(outputs) != count) {
    py.PyErr_Clear();
    return unusual();
  }
  std::vector<hvd_request> requests(static_cast<size_t>(count), what.request);
  std::vector<std::string> names;
  std::vector<Pair> pairs;
  names.reserve(requests.size()); /* requests point into it */
  pairs.reserve(requests.size());
  bool plain = true;
  for (size_t i = 0; i < requests.size() && plain; ++i) {
    Object* one = py.PySequence_GetItem(given, static_cast<ssize_t>(i));
    Object* output = py.PySequence_GetItem(outputs, static_cast<ssize_t>(i));
    pairs.emplace_back(one, output); /* keeps both alive */
    for (Object* object : {one, output})
      if (object) py.Py_DecRef(object);
    plain = one && output && pairs.back().fill(&requests[i]);
    names.push_back(member_name(what.name, i, requests.size()));
    requests[i].name = names.back().c_str();
  }
  if (!plain) {
    py.PyErr_Clear();
    return unusual();
  }
  auto size = static_cast<int32_t>(count);
  return kRun ? run(requests.data(), size, given, outputs) : start(requests.data(), size, HVD_GROUP);
}

Object* start_standing(Object*, Object* const* arguments, ssize_t n) {
  Reader reader(arguments, n);
  auto* requests = static_cast<const hvd_request*>(reader.address());
  int32_t count = reader.int32();
  int32_t flags = reader.int32();
  if (!reader.usual()) return unusual();
  return start(requests, count, static_cast<uint32_t>(flags));
}

/* ------------------------------------------------------------------------------------------------- the handles -- */

template <bool kLetGo>
Object* wait(Object*, Object* const* arguments, ssize_t n) {
  Reader reader(arguments, n);
  int64_t handle = reader.handle();
  if (!reader.usual()) return unusual();
  return wait_for(handle, kLetGo) == Waited::kDone ? kept(py.none) : nullptr;
}

Object* poll(Object*, Object* const* arguments, ssize_t n) {
  Reader reader(arguments, n);
  int64_t handle = reader.handle();
  if (!reader.usual()) return unusual();
  return py.PyLong_FromLongLong(hvd_poll(handle));
}

Object* release(Object*, Object* const* arguments, ssize_t n) {
  Reader reader(arguments, n);
  int64_t handle = reader.handle();
  if (!reader.usual()) return unusual();
  hvd_release(handle);
  return kept(py.none);
}

Method methods[] = {
    {"run_array", array<true>, kFastCall, nullptr},
    {"start_array", array<false>, kFastCall, nullptr},
    {"run_memory", run_memory, kFastCall, nullptr},
    {"run_arrays", arrays<true>, kFastCall, nullptr},
    {"start_arrays", arrays<false>, kFastCall, nullptr},
    {"start_standing", start_standing, kFastCall, nullptr},
    {"wait", wait<false>, kFastCall, nullptr},
    {"finish", wait<true>, kFastCall, nullptr},
    {"poll", poll, kFastCall, nullptr},
    {"release", release, kFastCall, nullptr},
    {"new_flight", new_flight, kFastCall, nullptr},
    {"open_flight", open_flight, kFastCall, nullptr},
    {"new_gradient", new_gradient, kFastCall, nullptr},
    {"prepare_gradient", prepare_gradient, kFastCall, nullptr},
    {"send_gradients", send_gradients, kFastCall, nullptr},
    {"finish_gradients", finish_gradients, kFastCall, nullptr},
    {"take_gradients", take_gradients, kFastCall, nullptr},
};

template <typename Symbol>
bool find(const char* name, Symbol* symbol) {
  *symbol = reinterpret_cast<Symbol>(dlsym(RTLD_DEFAULT, name));
  return *symbol != nullptr;
}

bool find_python() {
  bool complete = find("_Py_NoneStruct", &py.none) && find("_Py_NotImplementedStruct", &py.not_implemented);
#define HVD_PYTHON_FIND(name, result, arguments) complete = complete && find(#name, &py.name);
  HVD_PYTHON_FUNCTIONS(HVD_PYTHON_FIND)
#undef HVD_PYTHON_FIND
  return complete;
}

}  // namespace
}  // namespace hvd::python

/* A dictionary of the calls above, by name; NULL without an error of Python's if this interpreter lacks something. The
 * caller holds the GIL. raise_for raises the exception of (status, text), abandon takes (handle, what to keep alive...)
 * of a call that was interrupted. */
extern "C" HVD_API void* hvd_python_calls(void* raise_for, void* abandon) {
  using namespace hvd::python;
  if (!find_python()) return nullptr;
  hvd::python::raise_for = kept(static_cast<Object*>(raise_for));
  hvd::python::abandon = kept(static_cast<Object*>(abandon));
  Object* calls = py.PyDict_New();
  for (Method& method : methods) {
    Object* function = py.PyCFunction_NewEx(&method, nullptr, nullptr);
    if (function) py.PyDict_SetItemString(calls, method.name, function);
    if (function) py.Py_DecRef(function);
  }
  return calls;
}
