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
#include <dlfcn.h>

#include <optional>
#include <sstream>
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

struct Call {
  std::string name;
  hvd_request common{};
  std::vector<std::string> names;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<hvd_request> requests;

  explicit Call(const std::string& text) {
    std::istringstream in(text);
    int count = 0;
    std::getline(in, name);
    in >> common.kind >> common.reduce_op >> common.prescale >> common.postscale >> common.process_set >> common.root >>
        count;
    common.struct_size = sizeof(common);
    common.device = -1;
    shapes.resize(static_cast<size_t>(count));
    requests.assign(static_cast<size_t>(count), common);
    for (int i = 0; i < count; ++i) {
      auto& shape = shapes[static_cast<size_t>(i)];
      auto& request = requests[static_cast<size_t>(i)];
      in >> request.dtype >> request.ndim;
      shape.resize(static_cast<size_t>(request.ndim));
      for (auto& dimension : shape) in >> dimension;
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
  int32_t result = HVD_OK;
  int64_t handle = hvd_run(call.requests.data(), static_cast<int32_t>(count), -1.0, &result);
  if (handle < 0) result = static_cast<int32_t>(handle);
  if (result != HVD_OK) set_failure(status, hvd_last_error());
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
