# SPDX-License-Identifier: Apache-2.0
# Written by scripts/generate_verbs.py from horovod/common/verbs.py: edit there, run `make verbs`.
"""The collectives on arrays, and on lists, numbers and anything with the buffer protocol."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

from horovod.common.arguments import check_op, resolve_op
from horovod.common.calls import Call
from horovod.common.constants import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.common.verbs import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER
from horovod.numpy import _forms

# fmt: off

__all__ = [
    "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "grouped_allreduce",
    "grouped_allreduce_", "grouped_allreduce_async", "grouped_allreduce_async_", "allgather",
    "allgather_async", "grouped_allgather", "grouped_allgather_async", "broadcast", "broadcast_",
    "broadcast_async", "broadcast_async_", "alltoall", "alltoall_async", "reducescatter",
    "reducescatter_async", "grouped_reducescatter", "grouped_reducescatter_async",
]


def allreduce(
    tensor: Any, average: Optional[bool] = None, name: Optional[str] = None, op: Optional[int] = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduces a tensor over the ranks, element by element; all of them get the result.

    Args:
        tensor: array, list, number, or anything with the buffer protocol.
        average: former `op`: True is Average, False is Sum.
        name: matched across the ranks; unnamed operations are matched by their order.
        op: Average (default), Sum, Adasum, Min, Max or Product.
        prescale_factor: multiplies the tensor before the reduction.
        postscale_factor: multiplies the result.
        process_set: the ranks that take part.
    """
    set_id = process_set_id(process_set)
    op = resolve_op(op, average)
    return _forms.run(tensor, ALLREDUCE, name, set_id, op, prescale_factor, postscale_factor)


def allreduce_(
    tensor: Any, average: Optional[bool] = None, name: Optional[str] = None, op: Optional[int] = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> Any:
    """`allreduce` into the tensor itself, which is returned."""
    set_id = process_set_id(process_set)
    op = resolve_op(op, average)
    return _forms.run_in_place(tensor, ALLREDUCE, name, set_id, op, prescale_factor, postscale_factor)


def allreduce_async(
    tensor: Any, average: Optional[bool] = None, name: Optional[str] = None, op: Optional[int] = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allreduce` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    op = resolve_op(op, average)
    return _forms.start(tensor, ALLREDUCE, name, set_id, op, prescale_factor, postscale_factor)


def allreduce_async_(
    tensor: Any, average: Optional[bool] = None, name: Optional[str] = None, op: Optional[int] = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allreduce_` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    op = resolve_op(op, average)
    return _forms.start_in_place(tensor, ALLREDUCE, name, set_id, op, prescale_factor, postscale_factor)


def grouped_allreduce(
    tensors: Sequence[Any], average: Optional[bool] = None, name: Optional[str] = None,
    op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """`allreduce` of several tensors, none before all are ready on all ranks."""
    set_id = process_set_id(process_set)
    op = resolve_op(op, average)
    return _forms.run_group(tensors, ALLREDUCE, name, set_id, op, prescale_factor, postscale_factor)


def grouped_allreduce_(
    tensors: Sequence[Any], average: Optional[bool] = None, name: Optional[str] = None,
    op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """`allreduce_` of several tensors, none before all are ready on all ranks."""
    set_id = process_set_id(process_set)
    op = resolve_op(op, average)
    return _forms.run_group_in_place(tensors, ALLREDUCE, name, set_id, op, prescale_factor, postscale_factor)


def grouped_allreduce_async(
    tensors: Sequence[Any], average: Optional[bool] = None, name: Optional[str] = None,
    op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allreduce` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    op = resolve_op(op, average)
    return _forms.start_group(tensors, ALLREDUCE, name, set_id, op, prescale_factor, postscale_factor)


def grouped_allreduce_async_(
    tensors: Sequence[Any], average: Optional[bool] = None, name: Optional[str] = None,
    op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allreduce_` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    op = resolve_op(op, average)
    return _forms.start_group_in_place(
        tensors, ALLREDUCE, name, set_id, op, prescale_factor, postscale_factor,
    )


def allgather(tensor: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
    """Concatenates the ranks' tensors along the first dimension, which may differ from rank to rank.

    Args:
        tensor: array, list, number, or anything with the buffer protocol.
        name: matched across the ranks; unnamed operations are matched by their order.
        process_set: the ranks that take part.
    """
    set_id = process_set_id(process_set)
    return _forms.run(tensor, ALLGATHER, name, set_id)


def allgather_async(
    tensor: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allgather` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    return _forms.start(tensor, ALLGATHER, name, set_id)


def grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """`allgather` of several tensors, none before all are ready on all ranks."""
    set_id = process_set_id(process_set)
    return _forms.run_group(tensors, ALLGATHER, name, set_id)


def grouped_allgather_async(
    tensors: Sequence[Any], name: Optional[str] = None, process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allgather` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    return _forms.start_group(tensors, ALLGATHER, name, set_id)


def broadcast(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives every rank the root's tensor.

    Args:
        tensor: array, list, number, or anything with the buffer protocol.
        root_rank: the sender, a global rank also with a process set.
        name: matched across the ranks; unnamed operations are matched by their order.
        process_set: the ranks that take part.
    """
    set_id = process_set_id(process_set)
    return _forms.run(tensor, BROADCAST, name, set_id, Sum, 1.0, 1.0, root_rank)


def broadcast_(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set,
) -> Any:
    """`broadcast` into the tensor itself, which is returned."""
    set_id = process_set_id(process_set)
    return _forms.run_in_place(tensor, BROADCAST, name, set_id, Sum, 1.0, 1.0, root_rank)


def broadcast_async(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `broadcast` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    return _forms.start(tensor, BROADCAST, name, set_id, Sum, 1.0, 1.0, root_rank)


def broadcast_async_(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `broadcast_` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    return _forms.start_in_place(tensor, BROADCAST, name, set_id, Sum, 1.0, 1.0, root_rank)


def alltoall(
    tensor: Any, splits: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends each rank a slice of the first dimension and concatenates what comes from all, in rank order.

    Args:
        tensor: array, list, number, or anything with the buffer protocol.
        splits: rows for each member; None sends each the same number.
        name: matched across the ranks; unnamed operations are matched by their order.
        process_set: the ranks that take part.

    Returns:
        The received rows; with `splits`, also how many came from each member (int32).
    """
    set_id = process_set_id(process_set)
    call = Call(ALLTOALL, name, set_id, splits=splits)
    return _forms.exchange(call, tensor)


def alltoall_async(
    tensor: Any, splits: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `alltoall` and returns a handle for `poll` and `synchronize`; the result is always both."""
    set_id = process_set_id(process_set)
    call = Call(ALLTOALL, name, set_id, splits=splits)
    return _forms.start_exchange(call, tensor)


def reducescatter(
    tensor: Any, name: Optional[str] = None, op: int = Average, process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> Any:
    """Reduces a tensor and leaves each rank its share of the rows; the first ranks get what does not divide.

    Args:
        tensor: array, list, number, or anything with the buffer protocol.
        name: matched across the ranks; unnamed operations are matched by their order.
        op: Average or Sum.
        process_set: the ranks that take part.
        prescale_factor: multiplies the tensor before the reduction.
        postscale_factor: multiplies the result.
    """
    set_id = process_set_id(process_set)
    op = check_op(REDUCESCATTER, op)
    return _forms.run(tensor, REDUCESCATTER, name, set_id, op, prescale_factor, postscale_factor)


def reducescatter_async(
    tensor: Any, name: Optional[str] = None, op: int = Average, process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> int:
    """Starts `reducescatter` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    op = check_op(REDUCESCATTER, op)
    return _forms.start(tensor, REDUCESCATTER, name, set_id, op, prescale_factor, postscale_factor)


def grouped_reducescatter(
    tensors: Sequence[Any], name: Optional[str] = None, op: int = Average,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> List[Any]:
    """`reducescatter` of several tensors, none before all are ready on all ranks."""
    set_id = process_set_id(process_set)
    op = check_op(REDUCESCATTER, op)
    return _forms.run_group(tensors, REDUCESCATTER, name, set_id, op, prescale_factor, postscale_factor)


def grouped_reducescatter_async(
    tensors: Sequence[Any], name: Optional[str] = None, op: int = Average,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> int:
    """Starts `grouped_reducescatter` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    op = check_op(REDUCESCATTER, op)
    return _forms.start_group(tensors, REDUCESCATTER, name, set_id, op, prescale_factor, postscale_factor)
