# SPDX-License-Identifier: Apache-2.0
"""The numbers shared with the engine. Each equals its namesake in csrc/include/horovod/core.h."""

from __future__ import annotations

from typing import Final

# Reduction operations.
Average: Final = 0
Sum: Final = 1
Adasum: Final = 2
Min: Final = 3
Max: Final = 4
Product: Final = 5
REDUCE_OP_NAME: Final = ("Average", "Sum", "Adasum", "Min", "Max", "Product")

# Kinds of request.
ALLREDUCE: Final = 0
ALLGATHER: Final = 1
BROADCAST: Final = 2
JOIN: Final = 3
ALLTOALL: Final = 4
BARRIER: Final = 5
REDUCESCATTER: Final = 6
KIND_NAME: Final = ("allreduce", "allgather", "broadcast", "join", "alltoall", "barrier", "reducescatter")

# Element types.
UINT8: Final = 0
INT8: Final = 1
UINT16: Final = 2
INT16: Final = 3
INT32: Final = 4
INT64: Final = 5
FLOAT16: Final = 6
FLOAT32: Final = 7
FLOAT64: Final = 8
BOOL: Final = 9
BFLOAT16: Final = 10
UINT32: Final = 11
UINT64: Final = 12
DTYPE_NAME: Final = (
    "uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64",
    "bool", "bfloat16", "uint32", "uint64",
)  # fmt: skip
DTYPE_SIZE: Final = (1, 1, 2, 2, 4, 8, 2, 4, 8, 1, 2, 4, 8)
DTYPE_OF_NAME: Final = {name: number for number, name in enumerate(DTYPE_NAME)}

# Status codes.
OK: Final = 0
INVALID: Final = -1
PRECONDITION: Final = -2
ABORTED: Final = -3
UNKNOWN: Final = -4
TIMEOUT: Final = -5

# Flags of hvd_submit.
WILL_WAIT: Final = 1
AUTO_RELEASE: Final = 2
GROUP: Final = 4
IN_STREAM: Final = 8
APART: Final = 16

# Outputs from this size on, in bytes, are worth an hvd_allocate.
LARGE_OUTPUT: Final = 4194304

# Kinds of link between ranks.
LINK_CONTROL: Final = 0
LINK_WATCH: Final = 1
LINK_DATA_OUT: Final = 2
LINK_DATA_IN: Final = 3
LINK_QUICK: Final = 4
