# SPDX-License-Identifier: Apache-2.0
"""Horovod for JAX: collectives on jax arrays and pytrees, in and out of jit, and optax training.

import horovod.jax as hvd

hvd.init()
params = hvd.broadcast_parameters(params)
tx = hvd.DistributedOptimizer(optax.adam(1e-3 * hvd.size()))
"""

from __future__ import annotations

from horovod.common.basics import basics as _basics
from horovod.common.constants import Adasum, Average, Max, Min, Product, Sum
from horovod.common.exceptions import HorovodInternalError
from horovod.common.objects import allgather_object, broadcast_object
from horovod.common.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod.jax import elastic
from horovod.jax._lifecycle import init, shutdown
from horovod.jax.compression import Compression
from horovod.jax.functions import broadcast_optimizer_state, broadcast_parameters
from horovod.jax.ops import (
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    join,
    reducescatter,
)
from horovod.jax.optimizer import (
    DistributedOptimizer,
    DistributedState,
    grad,
    reduce_gradients,
    value_and_grad,
)

is_initialized = _basics.is_initialized
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
size = _basics.size
rank = _basics.rank
local_size = _basics.local_size
local_rank = _basics.local_rank
cross_size = _basics.cross_size
cross_rank = _basics.cross_rank
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "DistributedState", "HorovodInternalError",
    "Max", "Min", "ProcessSet", "Product", "Sum", "add_process_set", "allgather", "allgather_object",
    "allreduce", "alltoall", "barrier", "broadcast", "broadcast_object", "broadcast_optimizer_state",
    "broadcast_parameters", "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "elastic",
    "global_process_set", "gloo_built", "gloo_enabled", "grad", "grouped_allgather", "grouped_allreduce",
    "grouped_reducescatter", "init", "is_homogeneous", "is_initialized", "join", "local_rank", "local_size",
    "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "rank", "reduce_gradients",
    "reducescatter", "remove_process_set", "rocm_built", "shutdown", "size", "start_timeline",
    "stop_timeline", "value_and_grad",
]  # fmt: skip
