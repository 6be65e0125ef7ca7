# SPDX-License-Identifier: Apache-2.0
"""Collectives on NumPy arrays, and on lists, numbers and anything with the buffer protocol.

import horovod.numpy as hvd
hvd.init()
print(hvd.allreduce([1.0, 2.0]))
"""

from horovod.common import elastic
from horovod.common.basics import basics
from horovod.common.constants import Adasum, Average, Max, Min, Product, Sum
from horovod.common.exceptions import HorovodInternalError
from horovod.common.objects import allgather_object, broadcast_object
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.numpy import _calls
from horovod.numpy._calls import poll, synchronize
from horovod.numpy._verbs import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    join,
    reducescatter,
    reducescatter_async,
)

init = basics.init
shutdown = basics.shutdown
is_initialized = basics.is_initialized
rank = basics.rank
size = basics.size
local_rank = basics.local_rank
local_size = basics.local_size
cross_rank = basics.cross_rank
cross_size = basics.cross_size
is_homogeneous = basics.is_homogeneous
start_timeline = basics.start_timeline
stop_timeline = basics.stop_timeline
metrics = basics.metrics
mpi_built = basics.mpi_built
mpi_enabled = basics.mpi_enabled
mpi_threads_supported = basics.mpi_threads_supported
gloo_built = basics.gloo_built
gloo_enabled = basics.gloo_enabled
nccl_built = basics.nccl_built
ddl_built = basics.ddl_built
ccl_built = basics.ccl_built
cuda_built = basics.cuda_built
rocm_built = basics.rocm_built

basics.at_shutdown(_calls.forget_all)

__all__ = [
    "Adasum", "Average", "HorovodInternalError", "Max", "Min", "ProcessSet", "Product", "Sum",
    "add_process_set", "allgather", "allgather_async", "allgather_object", "allreduce", "allreduce_",
    "allreduce_async", "allreduce_async_", "alltoall", "alltoall_async", "barrier", "broadcast", "broadcast_",
    "broadcast_async", "broadcast_async_", "broadcast_object", "ccl_built", "cross_rank", "cross_size",
    "cuda_built", "ddl_built", "elastic", "global_process_set", "gloo_built", "gloo_enabled",
    "grouped_allgather", "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_",
    "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter",
    "grouped_reducescatter_async", "init", "is_homogeneous", "is_initialized", "join", "local_rank",
    "local_size", "metrics", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "poll",
    "rank", "reducescatter", "reducescatter_async", "remove_process_set", "rocm_built", "shutdown", "size",
    "start_timeline", "stop_timeline", "synchronize",
]  # fmt: skip
