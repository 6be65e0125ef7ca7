# SPDX-License-Identifier: Apache-2.0
"""Horovod for tf.keras: ``import horovod.tensorflow.keras as hvd``.

`tf.keras` is Keras 3, or Keras 2 when TF_USE_LEGACY_KERAS=1 is set. Both work, as do optimizers of
`tf_keras` itself.
"""

from __future__ import annotations

from typing import Any, Optional

from tensorflow import keras as _keras

from horovod import _keras as _impl
from horovod._keras import variables as _variables
from horovod._keras.saving import Saving as _Saving
from horovod._keras.values import Values as _Values
from horovod.common.basics import basics as _basics
from horovod.common.constants import Average, Sum
from horovod.common.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.keras import callbacks, elastic

init = _basics.init
shutdown = _basics.shutdown
is_initialized = _basics.is_initialized
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
size = _basics.size
local_size = _basics.local_size
cross_size = _basics.cross_size
rank = _basics.rank
local_rank = _basics.local_rank
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

_BACKEND = "tensorflow"
_values = _Values(_BACKEND)
allreduce = _values.allreduce
allgather = _values.allgather
broadcast = _values.broadcast
reducescatter = _values.reducescatter
load_model = _Saving(_keras).load_model

__all__ = [
    "Average",
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Sum",
    "add_process_set",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps a Keras optimizer so that its gradients are reduced over all ranks before they are applied.

    The result shares learning rate, variables and configuration with the optimizer passed, and is saved as
    that optimizer: a model saved with it loads without Horovod.

    Args:
        optimizer: an optimizer of Keras 3 or Keras 2.
        name: a new name for it.
        device_dense: accepted for compatibility.
        device_sparse: accepted for compatibility.
        compression: Compression.none, fp16, bf16 or a class with their two methods.
        sparse_as_dense: turn sparse gradients into dense ones before reducing.
        gradient_predivide_factor: divide by this before the sum and by size / this after it.
        op: Average or Sum.
        backward_passes_per_step: add up this many passes locally before reducing and applying.
        average_aggregated_gradients: divide the sum of the passes by their number.
        num_groups: deprecated, use `groups`.
        groups: number of groups to reduce atomically, or a list of lists of variables.
        process_set: the ranks that take part.
        scale_local_gradients: divide the gradients of local variables by the number of ranks.
    """
    return _impl.create_distributed_optimizer(
        optimizer,
        name=name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


def PartialDistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """A `DistributedOptimizer` that leaves the gradients of some layers on their rank.

    Args:
        local_layers: a layer or several; the other arguments are those of `DistributedOptimizer`.
    """
    return _impl.create_distributed_optimizer(
        optimizer,
        name=name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
        local_layers=local_layers,
    )


def broadcast_global_variables(root_rank: int) -> None:
    """Broadcasts all variables of a TF1 graph, in Keras' session. Elsewhere use the callback."""
    _variables.broadcast_global(root_rank)
