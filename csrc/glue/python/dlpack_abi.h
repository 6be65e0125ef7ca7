/* SPDX-License-Identifier: Apache-2.0
 *
 * DLPack 1's table of a framework's own functions, `type(tensor).__dlpack_c_exchange_api__`, declared by ourselves:
 * where a tensor of Python lies, asked in C. PyTorch has it since 2.10.
 */
#ifndef HOROVOD_GLUE_PYTHON_DLPACK_ABI_H_
#define HOROVOD_GLUE_PYTHON_DLPACK_ABI_H_

#include <stdint.h>

namespace hvd::python {

constexpr char kExchangeName[] = "dlpack_exchange_api"; /* of the capsule */
constexpr uint32_t kDlpackMajor = 1;
enum DlDevice : int32_t { kDlCpu = 1, kDlCuda = 2 };
enum DlKind : uint8_t { kDlInt = 0, kDlUint = 1, kDlFloat = 2, kDlBfloat = 4, kDlBool = 6 };

/* DLTensor */
struct DlTensor {
  void* data;
  int32_t device_type;
  int32_t device;
  int32_t ndim;
  uint8_t kind;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides; /* in elements; null: packed */
  uint64_t byte_offset;
};

/* DLPackExchangeAPI; each function returns 0, or -1 with an error of Python's. */
struct DlExchange {
  uint32_t major, minor;
  DlExchange* older;
  void* allocate;
  void* own_from_object;
  void* to_object;
  int (*from_object)(void* object, DlTensor* out); /* borrowed: valid as long as the object is; may be null */
  int (*current_stream)(int32_t device_type, int32_t device, void** out);
};

}  // namespace hvd::python

#endif /* HOROVOD_GLUE_PYTHON_DLPACK_ABI_H_ */
