# SPDX-License-Identifier: Apache-2.0
# Written by scripts/generate_verbs.py from horovod/common/verbs.py: edit there, run `make verbs`.
"""The collectives on jax arrays and pytrees.

Every verb works on concrete arrays and inside `jit`, `grad`, `scan`, `cond` and `vmap`. A pytree is one
grouped operation on its leaves: the ranks agree on it once and its tensors travel together.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

from horovod.common.arguments import check_op, resolve_op
from horovod.common.calls import Call
from horovod.common.constants import Average
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.common.verbs import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER
from horovod.jax import _forms
from horovod.jax.compression import Compression

# fmt: off

__all__ = [
    "allreduce", "grouped_allreduce", "allgather", "grouped_allgather", "broadcast", "alltoall",
    "reducescatter", "grouped_reducescatter",
]


def allreduce(
    tensor: Any, average: Optional[bool] = None, name: Optional[str] = None,
    compression: Any = Compression.none, op: Optional[int] = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduces a tensor over the ranks, element by element; all of them get the result.

    Args:
        tensor: array or pytree of arrays, which are handled as one operation.
        average: former `op`: True is Average, False is Sum.
        name: matched across the ranks; unnamed operations are matched by their order.
        compression: how to shrink what travels, e.g. Compression.fp16.
        op: Average (default), Sum, Adasum, Min, Max or Product.
        prescale_factor: multiplies the tensor before the reduction.
        postscale_factor: multiplies the result.
        process_set: the ranks that take part.
    """
    set_id = process_set_id(process_set)
    call = Call(ALLREDUCE, name, set_id, resolve_op(op, average), prescale_factor, postscale_factor)
    return _forms.run(call, tensor, compression)


def grouped_allreduce(
    tensors: Sequence[Any], average: Optional[bool] = None, name: Optional[str] = None,
    compression: Any = Compression.none, op: Optional[int] = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """`allreduce` of several tensors, none before all are ready on all ranks."""
    set_id = process_set_id(process_set)
    call = Call(ALLREDUCE, name, set_id, resolve_op(op, average), prescale_factor, postscale_factor)
    return _forms.run_group(call, tensors, compression)


def allgather(tensor: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
    """Concatenates the ranks' tensors along the first dimension, which may differ from rank to rank.

    Inside jit the ranks' first dimensions must be equal.

    Args:
        tensor: array or pytree of arrays, which are handled as one operation.
        name: matched across the ranks; unnamed operations are matched by their order.
        process_set: the ranks that take part.
    """
    set_id = process_set_id(process_set)
    call = Call(ALLGATHER, name, set_id)
    return _forms.run(call, tensor)


def grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """`allgather` of several tensors, none before all are ready on all ranks."""
    set_id = process_set_id(process_set)
    call = Call(ALLGATHER, name, set_id)
    return _forms.run_group(call, tensors)


def broadcast(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives every rank the root's tensor.

    Args:
        tensor: array or pytree of arrays, which are handled as one operation.
        root_rank: the sender, a global rank also with a process set.
        name: matched across the ranks; unnamed operations are matched by their order.
        process_set: the ranks that take part.
    """
    set_id = process_set_id(process_set)
    call = Call(BROADCAST, name, set_id, root=root_rank)
    return _forms.run(call, tensor)


def alltoall(
    tensor: Any, splits: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends each rank a slice of the first dimension and concatenates what comes from all, in rank order.

    Inside jit the splits must be equal.

    Args:
        tensor: array or pytree of arrays, which are handled as one operation.
        splits: rows for each member; None sends each the same number.
        name: matched across the ranks; unnamed operations are matched by their order.
        process_set: the ranks that take part.

    Returns:
        The received rows; with `splits`, also how many came from each member (int32).
    """
    set_id = process_set_id(process_set)
    call = Call(ALLTOALL, name, set_id, splits=splits)
    return _forms.exchange(call, tensor)


def reducescatter(
    tensor: Any, name: Optional[str] = None, compression: Any = Compression.none, op: int = Average,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> Any:
    """Reduces a tensor and leaves each rank its share of the rows; the first ranks get what does not divide.

    Args:
        tensor: array or pytree of arrays, which are handled as one operation.
        name: matched across the ranks; unnamed operations are matched by their order.
        compression: how to shrink what travels, e.g. Compression.fp16.
        op: Average or Sum.
        process_set: the ranks that take part.
        prescale_factor: multiplies the tensor before the reduction.
        postscale_factor: multiplies the result.
    """
    set_id = process_set_id(process_set)
    call = Call(REDUCESCATTER, name, set_id, check_op(REDUCESCATTER, op), prescale_factor, postscale_factor)
    return _forms.run(call, tensor, compression)


def grouped_reducescatter(
    tensors: Sequence[Any], name: Optional[str] = None, compression: Any = Compression.none,
    op: int = Average, process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[Any]:
    """`reducescatter` of several tensors, none before all are ready on all ranks."""
    set_id = process_set_id(process_set)
    call = Call(REDUCESCATTER, name, set_id, check_op(REDUCESCATTER, op), prescale_factor, postscale_factor)
    return _forms.run_group(call, tensors, compression)
