# SPDX-License-Identifier: Apache-2.0
"""What horovod.keras and horovod.tensorflow.keras offer alike; they add what depends on their Keras."""

from __future__ import annotations

from typing import Any, Optional

from horovod._keras import variables, wrap
from horovod._keras.settings import Settings, check_op
from horovod.common.arguments import check_groups
from horovod.common.barriers import join
from horovod.common.constants import Average
from horovod.common.lifecycle import __all__ as _lifecycle
from horovod.common.local_layers import weights_of
from horovod.common.process_sets import ProcessSet, global_process_set

__all__ = ["PartialDistributedOptimizer", "broadcast_global_variables", "join"]

# The names of a front end: those above and of the life cycle, and what it makes for its own Keras.
NAMES = [
    *_lifecycle,
    *__all__,
    "Compression",
    "DistributedOptimizer",
    "allgather",
    "allreduce",
    "broadcast",
    "callbacks",
    "elastic",
    "load_model",
    "reducescatter",
]


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = None,
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
    return _create(
        optimizer,
        name,
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
    compression: Any = None,
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
    return _create(
        optimizer,
        name,
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


def _create(
    optimizer: Any,
    name: Optional[str],
    num_groups: int = 0,
    groups: Any = None,
    local_layers: Any = None,
    **settings: Any,
) -> Any:
    """Checks what the two functions above were given, and wraps."""
    check_op(settings["op"])
    groups = check_groups(groups, num_groups, member="tf.Variable")
    local = weights_of(local_layers)
    return wrap(optimizer, Settings(groups=groups, local_variables=local, **settings), name)


def broadcast_global_variables(root_rank: int) -> None:
    """Broadcasts all variables of a TF1 graph, in Keras' session. Elsewhere use the callback."""
    variables.broadcast_global(root_rank)
