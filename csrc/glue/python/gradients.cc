/* SPDX-License-Identifier: Apache-2.0 */
#include "glue/python/gradients.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "glue/python/answers.h"
#include "glue/python/arguments.h"
#include "glue/python/dlpack_abi.h"
#include "glue/python/flight.h"
#include "glue/python/owned.h"
#include "horovod/core.h"

namespace hvd::python {
namespace {

/* ------------------------------------------------------------------------------------------------ one gradient -- */

bool dlpack_type(int32_t dtype, uint8_t* kind, uint8_t* bits) {
  auto is = [&](DlKind k, int b) {
    *kind = k;
    *bits = static_cast<uint8_t>(b);
    return true;
  };
  switch (dtype) {
    case HVD_FLOAT16: return is(kDlFloat, 16);
    case HVD_FLOAT32: return is(kDlFloat, 32);
    case HVD_FLOAT64: return is(kDlFloat, 64);
    case HVD_BFLOAT16: return is(kDlBfloat, 16);
    default: return false; /* nothing else has gradients */
  }
}

/* Whether it fills its memory in the order of its dimensions, and has the shape that was prepared. */
bool is_packed(const DlTensor& tensor, const int64_t* shape, int32_t ndim) {
  if (tensor.ndim != ndim) return false;
  int64_t step = 1;
  for (int32_t i = ndim; i-- > 0;) {
    if (tensor.shape[i] != shape[i]) return false;
    if (shape[i] != 1 && tensor.strides && tensor.strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

/* Says where a tensor lies, if its memory can travel as it is. */
bool point(Gradient& gradient, Object* grad) {
  DlTensor tensor;
  const DlExchange& exchange = *gradient.flight->exchange;
  if (exchange.from_object(grad, &tensor) != 0) { /* e.g. a sparse one */
    py.PyErr_Clear();
    return false;
  }
  int32_t device = gradient.request.device;
  bool there = device < 0 ? tensor.device_type == kDlCpu : tensor.device_type == kDlCuda && tensor.device == device;
  if (!there || !tensor.data || tensor.kind != gradient.kind || tensor.bits != gradient.bits || tensor.lanes != 1 ||
      !is_packed(tensor, gradient.shape, gradient.request.ndim))
    return false;
  if (device >= 0 && exchange.current_stream(kDlCuda, device, &gradient.request.stream) != 0) {
    py.PyErr_Clear();
    return false;
  }
  gradient.request.output = static_cast<char*>(tensor.data) + tensor.byte_offset;
  gradient.request.input = gradient.request.output;
  return true;
}

void let_memory_go(Gradient& gradient) {
  gradient.memory = Ref();
  gradient.grad = Ref();
}

/* Submits what is ready; with `wake` the last of it wakes the engine's thread. False: an error of Python's is set. */
bool send(Flight& flight, bool wake) {
  std::vector<Shared<Gradient>> ready;
  ready.swap(flight.ready); /* other hooks may come while the GIL is let go of */
  for (size_t i = 0; i < ready.size(); ++i) {
    Gradient& gradient = *ready[i];
    bool loud = wake && i + 1 == ready.size();
    int64_t handle = submit(&gradient.request, 1, loud ? 0 : HVD_WILL_WAIT);
    if (handle < 0) {
      for (size_t k = i; k < ready.size(); ++k) let_memory_go(*ready[k]);
      fail(handle);
      return false;
    }
    gradient.handle = handle;
    flight.sent.push_back(std::move(ready[i]));
  }
  return true;
}

bool await_end_of_backward(Flight& flight) {
  Ref number(py.PyObject_CallFunctionObjArgs(flight.current_task.get(), nullptr));
  if (!number) return false;
  int64_t task = py.PyLong_AsLongLong(number.get());
  if (task == flight.task) return true;
  Ref done(py.PyObject_CallFunctionObjArgs(flight.begin.get(), nullptr));
  if (done) flight.task = task;
  return static_cast<bool>(done);
}

Object* grad_name = nullptr;   /* "grad" */
Object* memory_name = nullptr; /* "untyped_storage" */

/* True: the gradient is on its list. */
bool take(const Shared<Gradient>& gradient, Object* param) {
  Flight& flight = *gradient->flight;
  if (!gradient->prepared || !flight.open || gradient->grad) return false;
  Ref grad(py.PyObject_GetAttr(param, grad_name));
  if (!grad || grad.get() == py.none || !point(*gradient, grad.get())) {
    py.PyErr_Clear();
    return false;
  }
  Ref memory(py.PyObject_CallMethodObjArgs(grad.get(), memory_name, nullptr));
  if (!memory) {
    py.PyErr_Clear();
    return false;
  }
  gradient->grad = std::move(grad);
  gradient->memory = std::move(memory);
  flight.ready.push_back(gradient);
  return true;
}

Object* hook(Object* self, Object* const* arguments, ssize_t n) {
  auto* own = held<Gradient>(self, kHook);
  if (!own) return nullptr;
  if (n != 1) return unusual();
  own->prefetch();
  Shared<Gradient> gradient(own); /* torch may let go of the hook meanwhile */
  if (!take(gradient, arguments[0]))
    return py.PyObject_CallFunctionObjArgs(gradient->general.get(), arguments[0], nullptr);
  Flight& flight = *gradient->flight;
  flight.unannounced += gradient->bytes;
  if (flight.unannounced >= gradient->enough) {
    flight.unannounced = 0;
    if (!send(flight, true)) return nullptr;
  }
  return await_end_of_backward(flight) ? kept(py.none) : nullptr;
}

Method hook_method = {"gradient_hook", hook, kFastCall, nullptr};

}  // namespace

/* --------------------------------------------------------------------------------------------------- the calls -- */

Object* new_flight(Object*, Object* const* arguments, ssize_t n) {
  Reader reader(arguments, n);
  Object* capsule = reader.object();
  Object* current_task = reader.object();
  Object* begin = reader.object();
  auto* exchange = begin ? static_cast<DlExchange*>(py.PyCapsule_GetPointer(capsule, kExchangeName)) : nullptr;
  while (exchange && exchange->major > kDlpackMajor) exchange = exchange->older;
  if (!reader.usual() || !exchange || exchange->major != kDlpackMajor || !exchange->from_object) return unusual();
  if (!grad_name) grad_name = py.PyUnicode_InternFromString("grad");
  if (!memory_name) memory_name = py.PyUnicode_InternFromString("untyped_storage");
  Shared<Flight> flight(new Flight);
  flight->exchange = exchange;
  flight->current_task = Ref(kept(current_task));
  flight->begin = Ref(kept(begin));
  return capsule_of(std::move(flight), kFlight, forget_flight);
}

Object* open_flight(Object*, Object* const* arguments, ssize_t n) {
  Flight* flight = flight_of(arguments, n);
  if (!flight) return nullptr;
  Reader reader(arguments + 1, n - 1);
  flight->open = reader.int32() != 0;
  return reader.usual() ? kept(py.none) : unusual();
}

Object* new_gradient(Object*, Object* const* arguments, ssize_t n) {
  if (n != 2) return unusual();
  Flight* flight = flight_of(arguments, n);
  if (!flight) return nullptr;
  Shared<Gradient> gradient(new Gradient);
  gradient->flight = Shared<Flight>(flight);
  gradient->general = Ref(kept(arguments[1]));
  Ref theirs(capsule_of(gradient, kHook, forget_hook));
  Ref mine(capsule_of(gradient, kGradient, forget_gradient));
  Ref made(theirs && mine ? py.PyCFunction_NewEx(&hook_method, theirs.get(), nullptr) : nullptr);
  return made ? py.Py_BuildValue("(OO)", mine.get(), made.get()) : nullptr;
}

Object* prepare_gradient(Object*, Object* const* arguments, ssize_t n) {
  auto* found = held<Gradient>(n > 0 ? arguments[0] : py.none, kGradient);
  if (!found) return nullptr;
  Gradient& gradient = *found;
  Reader reader(arguments + 1, n - 1);
  auto* request = static_cast<const hvd_request*>(reader.address());
  gradient.number = reader.handle();
  gradient.bytes = reader.handle();
  gradient.enough = reader.handle();
  if (!reader.usual()) return unusual();
  gradient.prepared =
      request && request->ndim <= kMostDimensions && dlpack_type(request->dtype, &gradient.kind, &gradient.bits);
  if (gradient.prepared) {
    gradient.name = request->name;
    std::copy_n(request->shape, request->ndim, gradient.shape);
    gradient.request = *request;
    gradient.request.name = gradient.name.c_str();
    gradient.request.shape = gradient.shape;
  }
  return kept(py.none);
}

Object* send_gradients(Object*, Object* const* arguments, ssize_t n) {
  Flight* flight = flight_of(arguments, n);
  if (!flight || !send(*flight, false)) return nullptr;
  return py.PyLong_FromLongLong(static_cast<long long>(flight->sent.size()));
}

Object* finish_gradients(Object*, Object* const* arguments, ssize_t n) {
  Flight* flight = flight_of(arguments, n);
  if (!flight || !send(*flight, false)) return nullptr;
  flight->unannounced = 0;
  while (flight->finished < flight->sent.size()) {
    std::vector<int64_t> handles; /* while the GIL is let go of, other hooks may add to the list */
    for (size_t i = flight->finished; i < flight->sent.size(); ++i) handles.push_back(flight->sent[i]->handle);
    void* thread = py.PyEval_SaveThread();
    int32_t status = HVD_OK;
    size_t done = 0;
    while (done < handles.size() && (status = hvd_finish(handles[done], kSlice)) == HVD_OK) ++done;
    py.PyEval_RestoreThread(thread);
    flight->finished += done;
    if (status == HVD_TIMEOUT && py.PyErr_CheckSignals() != 0) return nullptr;
    if (status != HVD_OK && status != HVD_TIMEOUT) return fail(status);
  }
  std::vector<Shared<Gradient>> done;
  done.swap(flight->sent); /* whoever is let go of may run anything */
  flight->finished = 0;
  for (auto& gradient : done) let_memory_go(*gradient);
  return kept(py.none);
}

Object* take_gradients(Object*, Object* const* arguments, ssize_t n) {
  Flight* flight = flight_of(arguments, n);
  if (!flight) return nullptr;
  std::vector<Shared<Gradient>> taken;
  std::vector<Shared<Gradient>> unsent;
  taken.swap(flight->sent);
  unsent.swap(flight->ready);
  size_t finished = std::exchange(flight->finished, 0);
  for (auto& gradient : unsent) let_memory_go(*gradient);
  Ref list(py.PyList_New(0));
  for (size_t i = 0; list && i < taken.size(); ++i) {
    Gradient& gradient = *taken[i];
    int64_t handle = i < finished ? 0 : gradient.handle; /* 0: nothing is left to be waited for */
    Ref row(py.Py_BuildValue("(LOOL)", static_cast<long long>(gradient.number), gradient.grad.get(),
                             gradient.memory.get(), static_cast<long long>(handle)));
    if (!row || py.PyList_Append(list.get(), row.get()) != 0) return nullptr;
    let_memory_go(gradient);
  }
  return list ? kept(list.get()) : nullptr;
}

}  // namespace hvd::python
