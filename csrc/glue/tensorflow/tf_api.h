// SPDX-License-Identifier: Apache-2.0
//
// The part of TensorFlow's C API that the kernels use, declared here and found at run time: no header of
// TensorFlow is included and nothing links to it, so one file serves every TensorFlow 2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

extern "C" {
typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpKernelContext TF_OpKernelContext;
typedef struct TF_AsyncOpKernelDoneCallback TF_AsyncOpKernelDoneCallback;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_ShapeHandle TF_ShapeHandle;
typedef struct TF_StringView {
  const char* data;
  size_t len;
} TF_StringView;
}

namespace horovod::tensorflow {

using CreateFn = void* (*)(TF_OpKernelConstruction*);
using ComputeFn = void (*)(void*, TF_OpKernelContext*);
using ComputeAsyncFn = void (*)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);
using DeleteFn = void (*)(void*);
using ShapeFn = void (*)(TF_ShapeInferenceContext*, TF_Status*);

// X(return type, name, arguments): one line for every entry, used to declare and to look up.
#define HOROVOD_TF_FUNCTIONS(X)                                                                                      \
  X(TF_Status*, TF_NewStatus, (void))                                                                                \
  X(void, TF_DeleteStatus, (TF_Status*))                                                                             \
  X(void, TF_SetStatus, (TF_Status*, int, const char*))                                                              \
  X(int, TF_GetCode, (const TF_Status*))                                                                             \
  X(const char*, TF_Message, (const TF_Status*))                                                                     \
  X(TF_OpDefinitionBuilder*, TF_NewOpDefinitionBuilder, (const char*))                                               \
  X(void, TF_OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder*, const char*))                                     \
  X(void, TF_OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder*, const char*))                                    \
  X(void, TF_OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder*, const char*))                                   \
  X(void, TF_OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder*, bool))                                      \
  X(void, TF_OpDefinitionBuilderSetShapeInferenceFunction, (TF_OpDefinitionBuilder*, ShapeFn))                       \
  X(void, TF_RegisterOpDefinition, (TF_OpDefinitionBuilder*, TF_Status*))                                            \
  X(int64_t, TF_ShapeInferenceContextNumInputs, (TF_ShapeInferenceContext*))                                         \
  X(TF_ShapeHandle*, TF_NewShapeHandle, (void))                                                                      \
  X(void, TF_DeleteShapeHandle, (TF_ShapeHandle*))                                                                   \
  X(void, TF_ShapeInferenceContextGetInput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))           \
  X(void, TF_ShapeInferenceContextSetOutput, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))          \
  X(int, TF_ShapeInferenceContextRankKnown, (TF_ShapeInferenceContext*, TF_ShapeHandle*))                            \
  X(int64_t, TF_ShapeInferenceContextRank, (TF_ShapeInferenceContext*, TF_ShapeHandle*))                             \
  X(TF_ShapeHandle*, TF_ShapeInferenceContextScalar, (TF_ShapeInferenceContext*))                                    \
  X(TF_ShapeHandle*, TF_ShapeInferenceContextVectorFromSize, (TF_ShapeInferenceContext*, size_t))                    \
  X(void, TF_ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext*, TF_Status*))                          \
  X(void, TF_ShapeInferenceContextSubshape,                                                                          \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, int64_t, int64_t, TF_ShapeHandle*, TF_Status*))                     \
  X(void, TF_ShapeInferenceContextConcatenateShapes,                                                                 \
    (TF_ShapeInferenceContext*, TF_ShapeHandle*, TF_ShapeHandle*, TF_ShapeHandle*, TF_Status*))                      \
  X(TF_KernelBuilder*, TF_NewKernelBuilder, (const char*, const char*, CreateFn, ComputeFn, DeleteFn))               \
  X(TF_KernelBuilder*, TF_NewAsyncKernelBuilder, (const char*, const char*, CreateFn, ComputeAsyncFn, DeleteFn))     \
  X(void, TF_KernelBuilder_HostMemory, (TF_KernelBuilder*, const char*))                                             \
  X(void, TF_RegisterKernelBuilder, (const char*, TF_KernelBuilder*, TF_Status*))                                    \
  X(void, TF_RunAsyncOpKernelDoneCallback, (TF_AsyncOpKernelDoneCallback*))                                          \
  X(TF_StringView, TF_OpKernelConstruction_GetName, (TF_OpKernelConstruction*))                                      \
  X(void, TF_OpKernelConstruction_Failure, (TF_OpKernelConstruction*, TF_Status*))                                   \
  X(bool, TF_OpKernelConstruction_HasAttr, (TF_OpKernelConstruction*, const char*, TF_Status*))                      \
  X(void, TF_OpKernelConstruction_GetAttrFloat, (TF_OpKernelConstruction*, const char*, float*, TF_Status*))         \
  X(void, TF_OpKernelConstruction_GetAttrInt64, (TF_OpKernelConstruction*, const char*, int64_t*, TF_Status*))       \
  X(void, TF_OpKernelConstruction_GetAttrBool, (TF_OpKernelConstruction*, const char*, unsigned char*, TF_Status*))  \
  X(void, TF_OpKernelConstruction_GetAttrSize,                                                                       \
    (TF_OpKernelConstruction*, const char*, int32_t*, int32_t*, TF_Status*))                                         \
  X(void, TF_OpKernelConstruction_GetAttrString, (TF_OpKernelConstruction*, const char*, char*, size_t, TF_Status*)) \
  X(void, TF_OpKernelConstruction_GetAttrStringList,                                                                 \
    (TF_OpKernelConstruction*, const char*, char**, size_t*, int, void*, size_t, TF_Status*))                        \
  X(int, TF_NumInputs, (TF_OpKernelContext*))                                                                        \
  X(int, TF_NumOutputs, (TF_OpKernelContext*))                                                                       \
  X(void, TF_GetInput, (TF_OpKernelContext*, int, TF_Tensor**, TF_Status*))                                          \
  X(void, TF_SetOutput, (TF_OpKernelContext*, int, const TF_Tensor*, TF_Status*))                                    \
  X(TF_Tensor*, TF_AllocateOutput, (TF_OpKernelContext*, int, int, const int64_t*, int, size_t, TF_Status*))         \
  X(TF_Tensor*, TF_ForwardInputOrAllocateOutput,                                                                     \
    (TF_OpKernelContext*, const int*, int, int, const int64_t*, int, int*, TF_Status*))                              \
  X(void, TF_OpKernelContext_Failure, (TF_OpKernelContext*, TF_Status*))                                             \
  X(TF_Tensor*, TF_AllocateTensor, (int, const int64_t*, int, size_t))                                               \
  X(TF_Tensor*, TF_NewTensor, (int, const int64_t*, int, void*, size_t, void (*)(void*, size_t, void*), void*))      \
  X(void*, TF_TensorData, (const TF_Tensor*))                                                                        \
  X(size_t, TF_TensorByteSize, (const TF_Tensor*))                                                                   \
  X(int, TF_TensorType, (const TF_Tensor*))                                                                          \
  X(int, TF_NumDims, (const TF_Tensor*))                                                                             \
  X(int64_t, TF_Dim, (const TF_Tensor*, int))                                                                        \
  X(int64_t, TF_TensorElementCount, (const TF_Tensor*))                                                              \
  X(void, TF_DeleteTensor, (TF_Tensor*))

struct Api {
#define HOROVOD_TF_DECLARE(ret, name, args) ret(*name) args = nullptr;
  HOROVOD_TF_FUNCTIONS(HOROVOD_TF_DECLARE)
#undef HOROVOD_TF_DECLARE
};

// The table, filled by load_api().
extern Api tf;

// Looks every entry up in the TensorFlow already loaded into this process. Returns what is missing, empty
// when all was found.
std::string load_api();

// TensorFlow's numbers for error classes (the canonical ones of gRPC) and element types.
enum Code {
  kUnknown = 2,
  kInvalidArgument = 3,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kInternal = 13
};
enum DataType { kInt32 = 3, kInt64 = 9 };

// A TF_Status that frees itself.
class Status {
 public:
  Status() : status_(tf.TF_NewStatus()) {}
  ~Status() { tf.TF_DeleteStatus(status_); }
  Status(const Status&) = delete;
  Status& operator=(const Status&) = delete;
  bool ok() const { return tf.TF_GetCode(status_) == 0; }
  void set(int code, const std::string& text) { tf.TF_SetStatus(status_, code, text.c_str()); }
  operator TF_Status*() { return status_; }

 private:
  TF_Status* status_;
};

// hvd_dtype of a TensorFlow element type, -1 when the engine has none; and the bytes of one element.
int32_t engine_dtype(int tf_type);
size_t element_size(int tf_type);
// The TensorFlow error class of an hvd_status.
int error_code(int32_t hvd_status);

}  // namespace horovod::tensorflow
