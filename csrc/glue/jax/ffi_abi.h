/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of XLA's foreign function interface that we use, declared by ourselves so that one library
 * serves every jax release: nothing of XLA is needed to compile, and nothing is linked.
 *
 * XLA evolves these structs by appending fields, and each one starts with its own size. We therefore ask
 * for the oldest interface that has everything we need (0.1; a minor newer than the running XLA's is
 * refused, an older one is accepted) and look at struct_size before touching what came later.
 */
#ifndef HOROVOD_GLUE_JAX_FFI_ABI_H_
#define HOROVOD_GLUE_JAX_FFI_ABI_H_

#include <stddef.h>
#include <stdint.h>

namespace hvd::jax {

constexpr int kApiMajor = 0;
constexpr int kApiMinor = 1;

enum ExtensionType : int { kMetadataExtension = 1 };
enum Stage : int { kInstantiate = 0, kPrepare = 1, kInitialize = 2, kExecute = 3 };
enum AttributeType : int { kArray = 1, kDictionary = 2, kScalar = 3, kString = 4 };

/* absl::StatusCode values that we hand out. */
enum ErrorCode : int { kUnknown = 2, kInvalidArgument = 3, kFailedPrecondition = 9, kAborted = 10 };

/* xla::PrimitiveType numbers; anything else is refused. */
enum ElementType : int {
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBF16 = 16,
  kToken = 17
};

struct Error;  /* opaque */
struct Future; /* opaque */

struct Extension {
  size_t struct_size;
  int type;
  Extension* next;
};

struct ApiVersion {
  size_t struct_size;
  Extension* extensions;
  int major, minor;
};

struct Metadata {
  size_t struct_size;
  ApiVersion api_version;
  uint32_t traits;
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct Buffer {
  size_t struct_size;
  Extension* extensions;
  int dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
};

struct ByteSpan {
  const char* data;
  size_t size;
};

struct Scalar {
  int dtype;
  void* value;
};

struct Array {
  int dtype;
  size_t size;
  void* data;
};

struct Arguments { /* also the layout of results */
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  int* types;
  void** buffers;
};

struct Attributes {
  size_t struct_size;
  Extension* extensions;
  int64_t size;
  int* types;
  ByteSpan** names;
  void** values;
};

struct ErrorCreateArgs {
  size_t struct_size;
  Extension* extensions;
  const char* message;
  int code;
};

struct FutureArgs { /* create: future is written; set available: future is read */
  size_t struct_size;
  Extension* extensions;
  Future* future;
};

struct FutureErrorArgs {
  size_t struct_size;
  Extension* extensions;
  Future* future;
  Error* error; /* ownership passes to XLA */
};

struct StreamArgs {
  size_t struct_size;
  Extension* extensions;
  void* context;
  void* stream; /* out: on CUDA a CUstream */
};

struct DeviceArgs {
  size_t struct_size;
  Extension* extensions;
  void* context;
  int32_t device; /* out: CUDA's number of it in this process */
};

struct Api {
  size_t struct_size;
  Extension* extensions;
  ApiVersion version;
  const void* internal;
  Error* (*error_create)(ErrorCreateArgs*);
  void* unused[3]; /* error text, registration */
  Error* (*stream_get)(StreamArgs*);
  void* unused_too[8]; /* types, contexts, state, device memory, thread pool */
  Error* (*future_create)(FutureArgs*);
  Error* (*future_set_available)(FutureArgs*);
  Error* (*future_set_error)(FutureErrorArgs*);
  void* run_id_get;
  Error* (*device_get)(DeviceArgs*); /* from jax 0.8 on: look at struct_size */
};

struct CallFrame {
  size_t struct_size;
  Extension* extensions;
  const Api* api;
  void* context;
  int stage;
  Arguments arguments;
  Arguments results;
  Attributes attributes;
  Future* future; /* out */
};

static_assert(offsetof(Api, future_create) == offsetof(Api, error_create) + 13 * sizeof(void*),
              "thirteen entries come before the futures");

}  // namespace hvd::jax

#endif  // HOROVOD_GLUE_JAX_FFI_ABI_H_
