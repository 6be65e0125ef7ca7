# SPDX-License-Identifier: Apache-2.0
"""Horovod for MXNet: collectives inside MXNet's dependency engine, a gluon trainer and an optimizer.

import horovod.mxnet as hvd

hvd.init()
hvd.broadcast_parameters(net.collect_params())
trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.01 * hvd.size()})
"""

from __future__ import annotations

from horovod.common.basics import basics as _basics
from horovod.common.constants import Adasum, Average, Max, Min, Product, Sum
from horovod.common.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod.mxnet import elastic
from horovod.mxnet._lifecycle import init, shutdown
from horovod.mxnet.compression import Compression
from horovod.mxnet.functions import allgather_object, broadcast_object, broadcast_parameters
from horovod.mxnet.mpi_ops import (
    allgather,
    allreduce,
    allreduce_,
    alltoall,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_reducescatter,
    reducescatter,
)
from horovod.mxnet.optimizer import DistributedOptimizer
from horovod.mxnet.trainer import DistributedTrainer

is_initialized = _basics.is_initialized
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
size = _basics.size
rank = _basics.rank
local_size = _basics.local_size
local_rank = _basics.local_rank
cross_size = _basics.cross_size
cross_rank = _basics.cross_rank
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
    "Adasum", "Average", "Compression", "DistributedOptimizer", "DistributedTrainer", "Max", "Min",
    "ProcessSet", "Product", "Sum", "add_process_set", "allgather", "allgather_object", "allreduce",
    "allreduce_", "alltoall", "broadcast", "broadcast_", "broadcast_object", "broadcast_parameters",
    "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "elastic", "global_process_set",
    "gloo_built", "gloo_enabled", "grouped_allgather", "grouped_allreduce", "grouped_allreduce_",
    "grouped_reducescatter", "init", "is_initialized", "local_rank", "local_size", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "rank", "reducescatter", "remove_process_set", "rocm_built",
    "shutdown", "size", "start_timeline", "stop_timeline",
]  # fmt: skip
