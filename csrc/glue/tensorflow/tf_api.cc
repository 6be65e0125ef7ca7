// SPDX-License-Identifier: Apache-2.0
#include "glue/tensorflow/tf_api.h"

#include <dlfcn.h>

#include "horovod/core.h"

namespace horovod::tensorflow {

Api tf;

std::string load_api() {
  // `import tensorflow` has mapped it already: NOLOAD only returns its handle.
  void* library = nullptr;
  for (const char* name : {"libtensorflow_framework.so.2", "libtensorflow_framework.2.dylib"})
    if (!library) library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  void* where = library ? library : RTLD_DEFAULT;
  std::string missing;
#define HOROVOD_TF_LOOKUP(ret, name, args)                      \
  tf.name = reinterpret_cast<ret(*) args>(dlsym(where, #name)); \
  if (!tf.name) missing += missing.empty() ? #name : ", " #name;
  HOROVOD_TF_FUNCTIONS(HOROVOD_TF_LOOKUP)
#undef HOROVOD_TF_LOOKUP
  return missing;
}

namespace {
struct Type {
  int32_t engine = -1;
  size_t bytes = 0;
};

Type type_of(int tf_type) {
  switch (tf_type) {  // tensorflow/core/framework/types.proto
    case 1: return {HVD_FLOAT32, 4};
    case 2: return {HVD_FLOAT64, 8};
    case 3: return {HVD_INT32, 4};
    case 4: return {HVD_UINT8, 1};
    case 5: return {HVD_INT16, 2};
    case 6: return {HVD_INT8, 1};
    case 9: return {HVD_INT64, 8};
    case 10: return {HVD_BOOL, 1};
    case 14: return {HVD_BFLOAT16, 2};
    case 17: return {HVD_UINT16, 2};
    case 19: return {HVD_FLOAT16, 2};
    case 22: return {HVD_UINT32, 4};
    case 23: return {HVD_UINT64, 8};
    default: return {};
  }
}
}  // namespace

int32_t engine_dtype(int tf_type) { return type_of(tf_type).engine; }
size_t element_size(int tf_type) { return type_of(tf_type).bytes; }

int error_code(int32_t hvd_status) {
  switch (hvd_status) {
    case HVD_INVALID: return kInvalidArgument;
    case HVD_PRECONDITION: return kFailedPrecondition;
    case HVD_ABORTED: return kAborted;
    default: return kUnknown;
  }
}

}  // namespace horovod::tensorflow
