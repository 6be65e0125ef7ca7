# SPDX-License-Identifier: Apache-2.0
# Written by scripts/generate_verbs.py from horovod/common/verbs.py: edit there, run `make verbs`.
"""The collectives on NDArray and mx.np arrays.

Allreduce and broadcast are operations of MXNet's own dependency engine: they return at once, and whatever
uses the result waits for it. The others return when they are done, because the size of their result is not
known before.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

from horovod.common.arguments import resolve_op
from horovod.common.calls import Call
from horovod.common.constants import Average
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.common.verbs import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER
from horovod.mxnet import _forms

# fmt: off

__all__ = [
    "allreduce", "allreduce_", "grouped_allreduce", "grouped_allreduce_", "allgather", "grouped_allgather",
    "broadcast", "broadcast_", "alltoall", "reducescatter", "grouped_reducescatter",
]


def allreduce(
    tensor: Any, average: Optional[bool] = None, name: Optional[str] = None, priority: int = 0,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
    op: Optional[int] = None,
) -> Any:
    """Reduces a tensor over the ranks, element by element; all of them get the result.

    Adasum is not supported.

    Args:
        tensor: dense NDArray or mx.np array.
        average: former `op`: True is Average, False is Sum.
        name: matched across the ranks; unnamed operations are matched by their order.
        priority: higher ones are started first by MXNet's engine.
        prescale_factor: multiplies the tensor before the reduction.
        postscale_factor: multiplies the result.
        process_set: the ranks that take part.
        op: Average (default), Sum, Adasum, Min, Max or Product.
    """
    set_id = process_set_id(process_set)
    call = Call(ALLREDUCE, name, set_id, resolve_op(op, average), prescale_factor, postscale_factor)
    return _forms.run(call, tensor, priority)


def allreduce_(
    tensor: Any, average: Optional[bool] = None, name: Optional[str] = None, priority: int = 0,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
    op: Optional[int] = None,
) -> Any:
    """`allreduce` into the tensor itself, which is returned."""
    set_id = process_set_id(process_set)
    call = Call(ALLREDUCE, name, set_id, resolve_op(op, average), prescale_factor, postscale_factor)
    return _forms.run_in_place(call, tensor, priority)


def grouped_allreduce(
    tensors: Sequence[Any], average: Optional[bool] = None, name: Optional[str] = None, priority: int = 0,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
    op: Optional[int] = None,
) -> Sequence[Any]:
    """`allreduce` of several tensors, none before all are ready on all ranks."""
    set_id = process_set_id(process_set)
    call = Call(ALLREDUCE, name, set_id, resolve_op(op, average), prescale_factor, postscale_factor)
    return _forms.run_group(call, tensors, priority)


def grouped_allreduce_(
    tensors: Sequence[Any], average: Optional[bool] = None, name: Optional[str] = None, priority: int = 0,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
    op: Optional[int] = None,
) -> Sequence[Any]:
    """`allreduce_` of several tensors, none before all are ready on all ranks."""
    set_id = process_set_id(process_set)
    call = Call(ALLREDUCE, name, set_id, resolve_op(op, average), prescale_factor, postscale_factor)
    return _forms.run_group_in_place(call, tensors, priority)


def allgather(
    tensor: Any, name: Optional[str] = None, priority: int = 0, process_set: ProcessSet = global_process_set,
) -> Any:
    """Concatenates the ranks' tensors along the first dimension, which may differ from rank to rank.

    Args:
        tensor: dense NDArray or mx.np array.
        name: matched across the ranks; unnamed operations are matched by their order.
        priority: higher ones are started first by MXNet's engine.
        process_set: the ranks that take part.
    """
    set_id = process_set_id(process_set)
    call = Call(ALLGATHER, name, set_id)
    return _forms.run(call, tensor, priority)


def grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Sequence[Any]:
    """`allgather` of several tensors, none before all are ready on all ranks."""
    set_id = process_set_id(process_set)
    call = Call(ALLGATHER, name, set_id)
    return _forms.run_group(call, tensors, priority)


def broadcast(
    tensor: Any, root_rank: int, name: Optional[str] = None, priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives every rank the root's tensor.

    Args:
        tensor: dense NDArray or mx.np array.
        root_rank: the sender, a global rank also with a process set.
        name: matched across the ranks; unnamed operations are matched by their order.
        priority: higher ones are started first by MXNet's engine.
        process_set: the ranks that take part.
    """
    set_id = process_set_id(process_set)
    call = Call(BROADCAST, name, set_id, root=root_rank)
    return _forms.run(call, tensor, priority)


def broadcast_(
    tensor: Any, root_rank: int, name: Optional[str] = None, priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """`broadcast` into the tensor itself, which is returned."""
    set_id = process_set_id(process_set)
    call = Call(BROADCAST, name, set_id, root=root_rank)
    return _forms.run_in_place(call, tensor, priority)


def alltoall(
    tensor: Any, splits: Any = None, name: Optional[str] = None, priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends each rank a slice of the first dimension and concatenates what comes from all, in rank order.

    Args:
        tensor: dense NDArray or mx.np array.
        splits: rows for each member; None sends each the same number.
        name: matched across the ranks; unnamed operations are matched by their order.
        priority: higher ones are started first by MXNet's engine.
        process_set: the ranks that take part.

    Returns:
        The received rows; with `splits`, also how many came from each member (int32).
    """
    set_id = process_set_id(process_set)
    call = Call(ALLTOALL, name, set_id, splits=splits)
    return _forms.exchange(call, tensor, priority)


def reducescatter(
    tensor: Any, op: int = Average, name: Optional[str] = None, priority: int = 0,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> Any:
    """Reduces a tensor and leaves each rank its share of the rows; the first ranks get what does not divide.

    Args:
        tensor: dense NDArray or mx.np array.
        op: Average or Sum.
        name: matched across the ranks; unnamed operations are matched by their order.
        priority: higher ones are started first by MXNet's engine.
        process_set: the ranks that take part.
        prescale_factor: multiplies the tensor before the reduction.
        postscale_factor: multiplies the result.
    """
    set_id = process_set_id(process_set)
    call = Call(REDUCESCATTER, name, set_id, op, prescale_factor, postscale_factor)
    return _forms.run(call, tensor, priority)


def grouped_reducescatter(
    tensors: Sequence[Any], op: int = Average, name: Optional[str] = None, priority: int = 0,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> Sequence[Any]:
    """`reducescatter` of several tensors, none before all are ready on all ranks."""
    set_id = process_set_id(process_set)
    call = Call(REDUCESCATTER, name, set_id, op, prescale_factor, postscale_factor)
    return _forms.run_group(call, tensors, priority)
