// SPDX-License-Identifier: Apache-2.0
//
// Collectives inside tf.function(jit_compile=True) on the CPU.
//
// XLA has no kernel for the ops of this library, but it can call a registered host function. TensorFlow
// exports its registry of such functions only under C++ names, so they are looked up, and where they are not
// found the Python side says what to do instead. A call carries its description as text (written by
// horovod/tensorflow/_xla.py):
//
//   <name>\n<kind> <op> <prescale> <postscale> <process set> <root> <count>\n
//   <dtype> <ndim> <dimension>...\n           one line for each tensor
// where the scale factors are the integers with the bits of the doubles.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "glue/tensorflow/attributes.h"
#include "horovod/core.h"

extern "C" {
typedef struct XlaCustomCallStatus_ XlaCustomCallStatus;
}

namespace horovod::tensorflow {
namespace {

constexpr const char* kTarget = "horovod_collective";

// XLA's own setter is not exported; the status is one optional string (xla/service/custom_call_status.cc).
void set_failure(XlaCustomCallStatus* status, const std::string& text) {
  *reinterpret_cast<std::optional<std::string>*>(status) = text;
}

// The numbers of a text, one after the other. (Not a stream: streams use locale objects, of which a process
// with several C++ libraries has several.)
class Numbers {
 public:
  explicit Numbers(const char* text) : text_(text) {}
  int64_t next() {
    char* end = nullptr;
    int64_t number = strtoll(text_, &end, 10);
    text_ = end;
    return number;
  }
  int32_t next32() { return static_cast<int32_t>(next()); }
  double next_double() {  // written as the integer with the same bits, which no locale changes
    int64_t bits = next();
    double number = 0;
    memcpy(&number, &bits, sizeof(number));
    return number;
  }

 private:
  const char* text_;
};

struct Call {
  std::vector<std::string> names;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<hvd_request> requests;

  explicit Call(const std::string& text) {
    const size_t line = text.find('\n');
    const std::string name = text.substr(0, line);
    Numbers numbers(text.c_str() + line + 1);
    hvd_request common{};
    common.struct_size = sizeof(common);
    common.kind = numbers.next32();
    common.reduce_op = numbers.next32();
    common.prescale = numbers.next_double();
    common.postscale = numbers.next_double();
    common.process_set = numbers.next32();
    common.root = numbers.next32();
    common.device = -1;
    const int count = numbers.next32();
    shapes.resize(static_cast<size_t>(count));
    requests.assign(static_cast<size_t>(count), common);
    for (int i = 0; i < count; ++i) {
      auto& shape = shapes[static_cast<size_t>(i)];
      auto& request = requests[static_cast<size_t>(i)];
      request.dtype = numbers.next32();
      request.ndim = numbers.next32();
      shape.resize(static_cast<size_t>(request.ndim));
      for (auto& dimension : shape) dimension = numbers.next();
      request.shape = shape.data();
      names.push_back(count == 1 ? name : member_name(name, i, count));
    }
    for (size_t i = 0; i < requests.size(); ++i) requests[i].name = names[i].c_str();
  }
};

// One result is passed as its address, several as an array of addresses.
void collective(void* out, const void** in, const char* text, size_t length, XlaCustomCallStatus* status) {
  Call call(std::string(text, length));
  const size_t count = call.requests.size();
  for (size_t i = 0; i < count; ++i) {
    call.requests[i].input = in[i];
    call.requests[i].output = count == 1 ? out : static_cast<void**>(out)[i];
  }
  int64_t handle = 0;
  if (hvd_run(call.requests.data(), static_cast<int32_t>(count), -1.0, &handle) != HVD_OK)
    set_failure(status, hvd_last_error());
  if (handle > 0) hvd_release(handle);
}

void* find(const char* symbol) {
  void* library = dlopen("libtensorflow_cc.so.2", RTLD_NOW | RTLD_NOLOAD);
  return library ? dlsym(library, symbol) : nullptr;
}

bool register_target() {
  using Global = void* (*)();
  using Register = void (*)(void*, const std::string&, void*, const std::string&);
  auto global = reinterpret_cast<Global>(find("_ZN3xla24CustomCallTargetRegistry6GlobalEv"));
  auto add = reinterpret_cast<Register>(
      find("_ZN3xla24CustomCallTargetRegistry8RegisterERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPvS8_"));
  if (!global || !add) return false;
  add(global(), kTarget, reinterpret_cast<void*>(&collective), "Host");
  return true;
}

}  // namespace
}  // namespace horovod::tensorflow

// 1 when compiled CPU code can call the engine (registered at the first call), 0 when it cannot.
extern "C" HVD_API int32_t horovod_tensorflow_xla_available() {
  static const bool registered = horovod::tensorflow::register_target();
  return registered ? 1 : 0;
}
