# SPDX-License-Identifier: Apache-2.0
# Written by scripts/generate_verbs.py from horovod/common/verbs.py: edit there, run `make verbs`.
"""The collectives on torch tensors.

Every verb comes in up to four forms:

    verb            blocking; returns a new tensor; differentiable
    verb_           blocking; overwrites its argument and returns it
    verb_async      returns a handle at once; `synchronize(handle)` waits and returns the output
    verb_async_     both

and so do groups of tensors: `grouped_verb`, ... All dtypes are taken (complex for sums; float8 is moved but
not reduced), on any device and in any layout. Until `synchronize` returns, the tensors given to an
asynchronous form must not be modified; their storage cannot be resized any more.

Raises, in all of them: ValueError for a wrong argument; HorovodInternalError if the ranks disagree about an
operation, a peer died, or Horovod is not initialised or was shut down.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Union

import torch

from horovod.common.arguments import resolve_op
from horovod.common.calls import Call
from horovod.common.constants import Average
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.common.verbs import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER
from horovod.torch import _forms
from horovod.torch.compression import Compression

# fmt: off

__all__ = [
    "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "grouped_allreduce",
    "grouped_allreduce_", "grouped_allreduce_async", "grouped_allreduce_async_", "allgather",
    "allgather_async", "grouped_allgather", "grouped_allgather_async", "broadcast", "broadcast_",
    "broadcast_async", "broadcast_async_", "alltoall", "alltoall_async", "reducescatter",
    "reducescatter_async", "grouped_reducescatter", "grouped_reducescatter_async",
]


def allreduce(
    tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
    compression: Any = Compression.none, op: Optional[int] = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces a tensor over the ranks, element by element; all of them get the result.

    Sparse COO tensors are gathered and summed by row.

    Args:
        tensor: on any device, in any layout.
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


def allreduce_(
    tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
    op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """`allreduce` into the tensor itself, which is returned."""
    set_id = process_set_id(process_set)
    call = Call(ALLREDUCE, name, set_id, resolve_op(op, average), prescale_factor, postscale_factor)
    return _forms.run_in_place(call, tensor)


def allreduce_async(
    tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
    op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allreduce` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    call = Call(ALLREDUCE, name, set_id, resolve_op(op, average), prescale_factor, postscale_factor)
    return _forms.start(call, tensor)


def allreduce_async_(
    tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
    op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allreduce_` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    call = Call(ALLREDUCE, name, set_id, resolve_op(op, average), prescale_factor, postscale_factor)
    return _forms.start_in_place(call, tensor)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor], average: Optional[bool] = None, name: Optional[str] = None,
    compression: Any = Compression.none, op: Optional[int] = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> List[torch.Tensor]:
    """`allreduce` of several tensors, none before all are ready on all ranks."""
    set_id = process_set_id(process_set)
    call = Call(ALLREDUCE, name, set_id, resolve_op(op, average), prescale_factor, postscale_factor)
    return _forms.run_group(call, tensors, compression)


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor], average: Optional[bool] = None, name: Optional[str] = None,
    op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tuple[torch.Tensor, ...]:
    """`allreduce_` of several tensors, none before all are ready on all ranks."""
    set_id = process_set_id(process_set)
    call = Call(ALLREDUCE, name, set_id, resolve_op(op, average), prescale_factor, postscale_factor)
    return _forms.run_group_in_place(call, tensors)


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor], average: Optional[bool] = None, name: Optional[str] = None,
    op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allreduce` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    call = Call(ALLREDUCE, name, set_id, resolve_op(op, average), prescale_factor, postscale_factor)
    return _forms.start_group(call, tensors)


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor], average: Optional[bool] = None, name: Optional[str] = None,
    op: Optional[int] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allreduce_` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    call = Call(ALLREDUCE, name, set_id, resolve_op(op, average), prescale_factor, postscale_factor)
    return _forms.start_group_in_place(call, tensors)


def allgather(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Concatenates the ranks' tensors along the first dimension, which may differ from rank to rank.

    Args:
        tensor: on any device, in any layout.
        name: matched across the ranks; unnamed operations are matched by their order.
        process_set: the ranks that take part.
    """
    set_id = process_set_id(process_set)
    call = Call(ALLGATHER, name, set_id)
    return _forms.run(call, tensor)


def allgather_async(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allgather` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    call = Call(ALLGATHER, name, set_id)
    return _forms.start(call, tensor)


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set,
) -> Tuple[torch.Tensor, ...]:
    """`allgather` of several tensors, none before all are ready on all ranks."""
    set_id = process_set_id(process_set)
    call = Call(ALLGATHER, name, set_id)
    return _forms.run_group(call, tensors)


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allgather` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    call = Call(ALLGATHER, name, set_id)
    return _forms.start_group(call, tensors)


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Gives every rank the root's tensor.

    Args:
        tensor: on any device, in any layout.
        root_rank: the sender, a global rank also with a process set.
        name: matched across the ranks; unnamed operations are matched by their order.
        process_set: the ranks that take part.
    """
    set_id = process_set_id(process_set)
    call = Call(BROADCAST, name, set_id, root=root_rank)
    return _forms.run(call, tensor)


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """`broadcast` into the tensor itself, which is returned."""
    set_id = process_set_id(process_set)
    call = Call(BROADCAST, name, set_id, root=root_rank)
    return _forms.run_in_place(call, tensor)


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `broadcast` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    call = Call(BROADCAST, name, set_id, root=root_rank)
    return _forms.start(call, tensor)


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `broadcast_` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    call = Call(BROADCAST, name, set_id, root=root_rank)
    return _forms.start_in_place(call, tensor)


def alltoall(
    tensor: torch.Tensor, splits: Any = None, name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
    """Sends each rank a slice of the first dimension and concatenates what comes from all, in rank order.

    Args:
        tensor: on any device, in any layout.
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
    tensor: torch.Tensor, splits: Any = None, name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `alltoall` and returns a handle for `poll` and `synchronize`; the result is always both."""
    set_id = process_set_id(process_set)
    call = Call(ALLTOALL, name, set_id, splits=splits)
    return _forms.start_exchange(call, tensor)


def reducescatter(
    tensor: torch.Tensor, name: Optional[str] = None, compression: Any = Compression.none, op: int = Average,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduces a tensor and leaves each rank its share of the rows; the first ranks get what does not divide.

    Args:
        tensor: on any device, in any layout.
        name: matched across the ranks; unnamed operations are matched by their order.
        compression: how to shrink what travels, e.g. Compression.fp16.
        op: Average or Sum.
        process_set: the ranks that take part.
        prescale_factor: multiplies the tensor before the reduction.
        postscale_factor: multiplies the result.
    """
    set_id = process_set_id(process_set)
    call = Call(REDUCESCATTER, name, set_id, op, prescale_factor, postscale_factor)
    return _forms.run(call, tensor, compression)


def reducescatter_async(
    tensor: torch.Tensor, name: Optional[str] = None, op: int = Average,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> int:
    """Starts `reducescatter` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    call = Call(REDUCESCATTER, name, set_id, op, prescale_factor, postscale_factor)
    return _forms.start(call, tensor)


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, compression: Any = Compression.none,
    op: int = Average, process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[torch.Tensor]:
    """`reducescatter` of several tensors, none before all are ready on all ranks."""
    set_id = process_set_id(process_set)
    call = Call(REDUCESCATTER, name, set_id, op, prescale_factor, postscale_factor)
    return _forms.run_group(call, tensors, compression)


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, op: int = Average,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> int:
    """Starts `grouped_reducescatter` and returns a handle for `poll` and `synchronize`."""
    set_id = process_set_id(process_set)
    call = Call(REDUCESCATTER, name, set_id, op, prescale_factor, postscale_factor)
    return _forms.start_group(call, tensors)
