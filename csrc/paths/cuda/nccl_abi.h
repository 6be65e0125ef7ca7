// SPDX-License-Identifier: Apache-2.0
// The few types, values and calls of NCCL that we use, as facts of its binary interface: the same in all releases from
// 2.14 on.
#pragma once

#include <climits>
#include <cstddef>

#include "paths/cuda/driver_abi.h"

struct ncclComm;

namespace hvd::cuda {

using NcclResult = int;
using NcclComm = ncclComm*;

struct NcclId {
  char bytes[128];
};

enum : NcclResult {
  kNcclSuccess = 0,
  kNcclUnhandledCuda = 1,
  kNcclSystem = 2,
  kNcclInternal = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemote = 6,
  kNcclInProgress = 7,
};

enum NcclType : int {
  kNcclInt8 = 0,
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclUint32 = 3,
  kNcclInt64 = 4,
  kNcclUint64 = 5,
  kNcclFloat16 = 6,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8,
  kNcclBfloat16 = 9,
};

enum NcclOp : int { kNcclSum = 0, kNcclProduct = 1, kNcclMax = 2, kNcclMin = 3 };

enum : int { kNcclScalarOnHost = 1 };

// The configuration as release 2.14 knew it. Newer libraries read `size` and leave what follows at its defaults.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = INT_MIN;  // INT_MIN: the default
};

constexpr int kNcclOldest = 21400;
constexpr int kNcclWithSplit = 21800;

// X(member, symbol, arguments): every call returns an NcclResult.
#define HVD_NCCL_CALLS(X)                                                                        \
  X(get_version, ncclGetVersion, (int*))                                                         \
  X(get_unique_id, ncclGetUniqueId, (NcclId*))                                                   \
  X(init_rank, ncclCommInitRankConfig, (NcclComm*, int, NcclId, int, NcclConfig*))               \
  X(finalize, ncclCommFinalize, (NcclComm))                                                      \
  X(destroy, ncclCommDestroy, (NcclComm))                                                        \
  X(abort, ncclCommAbort, (NcclComm))                                                            \
  X(async_error, ncclCommGetAsyncError, (NcclComm, NcclResult*))                                 \
  X(group_start, ncclGroupStart, ())                                                             \
  X(group_end, ncclGroupEnd, ())                                                                 \
  X(scaled_sum, ncclRedOpCreatePreMulSum, (int*, void*, int, int, NcclComm))                     \
  X(all_reduce, ncclAllReduce, (const void*, void*, size_t, int, int, NcclComm, Stream))         \
  X(reduce, ncclReduce, (const void*, void*, size_t, int, int, int, NcclComm, Stream))           \
  X(reduce_scatter, ncclReduceScatter, (const void*, void*, size_t, int, int, NcclComm, Stream)) \
  X(all_gather, ncclAllGather, (const void*, void*, size_t, int, NcclComm, Stream))              \
  X(broadcast, ncclBroadcast, (const void*, void*, size_t, int, int, NcclComm, Stream))          \
  X(send, ncclSend, (const void*, size_t, int, int, NcclComm, Stream))                           \
  X(receive, ncclRecv, (void*, size_t, int, int, NcclComm, Stream))

}  // namespace hvd::cuda
