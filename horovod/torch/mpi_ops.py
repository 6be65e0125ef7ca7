# SPDX-License-Identifier: Apache-2.0
"""The collectives, on torch tensors.

Every verb comes in up to four forms:

    verb            blocking; returns a new tensor; differentiable
    verb_           blocking; overwrites its argument and returns it
    verb_async      returns a handle at once; `synchronize(handle)` waits and returns the output
    verb_async_     both

Arguments they share:

    name            matches the operation across ranks. Without one, operations are numbered, so all members
                    of the process set must issue their unnamed operations in the same order.
    op              hvd.Average (default), Sum, Adasum, Min, Max or Product. `average=True/False` is the old
                    spelling of Average/Sum.
    prescale_factor, postscale_factor
                    multiply the tensor before and after the reduction.
    process_set     the ranks that take part; all by default.
    compression     see `horovod.torch.compression`; the blocking forms of the reductions take it.

All dtypes are taken (complex for sums; float8 is moved but not reduced), on any device and in any layout.
Until `synchronize` returns, the tensors given to an asynchronous form must not be modified.

Raises, in all of them: ValueError for a wrong argument; HorovodInternalError if the ranks disagree about an
operation, a peer died, or Horovod is not initialised or was shut down.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Union

import torch

from horovod.common import engine
from horovod.common.arguments import check_splits, resolve_op
from horovod.common.basics import basics as _basics
from horovod.common.constants import BARRIER, JOIN, UINT8, Adasum, Average, Max, Min, Product, Sum
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    process_set_id,
    remove_process_set,
)
from horovod.common.util import (
    check_installed_version,
    gpu_available,
    num_rank_is_power_2,
)
from horovod.torch import _autograd, _compile, _handles, _sparse
from horovod.torch._autograd import (
    HorovodAllgather,
    HorovodAllreduce,
    HorovodAlltoall,
    HorovodBroadcast,
    HorovodGroupedAllgather,
    HorovodGroupedAllreduce,
    HorovodGroupedReducescatter,
    HorovodReducescatter,
)
from horovod.torch._handles import _table as _handle_map
from horovod.torch._handles import poll, synchronize
from horovod.torch._verbs import Operation, Options, allreduce_now, place_in
from horovod.torch.compression import Compression

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
handle_average_backwards_compatibility = resolve_op

_basics.at_init(_handles.forget_all)
_basics.at_shutdown(_handles.forget_all)

Tensors = Sequence[torch.Tensor]

# ------------------------------------------------------------------------------------ allreduce --


def allreduce(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces a tensor over all ranks into a new one. Sparse COO tensors are gathered and summed by row."""
    op = resolve_op(op, average)
    if _compile.tracing():
        wire, context = compression.compress(tensor)
        reduced = _compile.ops().allreduce(
            wire, name or "", op, prescale_factor, postscale_factor, process_set.process_set_id
        )
        return compression.decompress(reduced, context)  # type: ignore[no-any-return]
    if tensor.layout is not torch.strided:
        return _sparse.allreduce(tensor, name, op, process_set)
    options = Options(op, prescale=prescale_factor, postscale=postscale_factor)
    wire, context = compression.compress(tensor)
    reduced = _autograd.allreduce(wire, name, options, process_set_id(process_set))
    return compression.decompress(reduced, context)  # type: ignore[no-any-return]


def allreduce_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Reduces a tensor over all ranks in place."""
    options = Options(resolve_op(op, average), prescale=prescale_factor, postscale=postscale_factor)
    return allreduce_now(tensor, name, options, process_set_id(process_set), in_place=True)


def allreduce_async(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allreduce` and returns a handle."""
    options = Options(resolve_op(op, average), prescale=prescale_factor, postscale=postscale_factor)
    return Operation("allreduce", [tensor], name, options, process_set_id(process_set)).start()


def allreduce_async_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `allreduce_` and returns a handle."""
    options = Options(resolve_op(op, average), prescale=prescale_factor, postscale=postscale_factor)
    return Operation("allreduce", [tensor], name, options, process_set_id(process_set), in_place=True).start()


def grouped_allreduce(
    tensors: Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> List[torch.Tensor]:
    """Reduces several tensors, none of them before all are ready on all ranks. Returns a list."""
    op = resolve_op(op, average)
    wires, contexts = _compress(compression, tensors)
    if _compile.tracing():
        reduced = _compile.ops().grouped_allreduce(
            wires, name or "", op, prescale_factor, postscale_factor, process_set.process_set_id
        )
    else:
        options = Options(op, prescale=prescale_factor, postscale=postscale_factor)
        reduced = _autograd.grouped_allreduce(wires, name, options, process_set_id(process_set))
    return [compression.decompress(wire, context) for wire, context in zip(reduced, contexts)]


def grouped_allreduce_(
    tensors: Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tuple[torch.Tensor, ...]:
    """`grouped_allreduce` in place. Returns the tensors as a tuple."""
    options = Options(resolve_op(op, average), prescale=prescale_factor, postscale=postscale_factor)
    set_id = process_set_id(process_set)
    result: Tuple[torch.Tensor, ...] = Operation(
        "allreduce", tensors, name, options, set_id, in_place=True, grouped=True
    ).run()
    return result


def grouped_allreduce_async(
    tensors: Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allreduce` and returns a handle; `synchronize` gives a tuple."""
    options = Options(resolve_op(op, average), prescale=prescale_factor, postscale=postscale_factor)
    return Operation("allreduce", tensors, name, options, process_set_id(process_set), grouped=True).start()


def grouped_allreduce_async_(
    tensors: Tensors,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `grouped_allreduce_` and returns a handle."""
    options = Options(resolve_op(op, average), prescale=prescale_factor, postscale=postscale_factor)
    set_id = process_set_id(process_set)
    return Operation("allreduce", tensors, name, options, set_id, in_place=True, grouped=True).start()


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Any:
    """Starts the reduction of a sparse COO tensor; returns a function that waits and gives the result.

    Each rank's rows are gathered; rows with the same index are added in the result. `op` is Average or Sum.
    """
    return _sparse.allreduce_async(tensor, name, op, process_set)


# ------------------------------------------------------------------------------------ allgather --


def allgather(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Concatenates the ranks' tensors along the first dimension, which may differ from rank to rank."""
    if _compile.tracing():
        return _compile.ops().allgather(tensor, name or "", process_set.process_set_id)  # type: ignore[no-any-return]
    gathered: torch.Tensor = _autograd.allgather(tensor, name, process_set_id(process_set))
    return gathered


def allgather_async(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `allgather` and returns a handle."""
    return Operation("allgather", [tensor], name, Options(), process_set_id(process_set)).start()


def grouped_allgather(
    tensors: Tensors, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Tuple[torch.Tensor, ...]:
    """`allgather` of several tensors, none of them before all are ready on all ranks."""
    gathered: Tuple[torch.Tensor, ...] = _autograd.grouped_allgather(
        tensors, name, process_set_id(process_set)
    )
    return gathered


def grouped_allgather_async(
    tensors: Tensors, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts `grouped_allgather` and returns a handle."""
    return Operation("allgather", tensors, name, Options(), process_set_id(process_set), grouped=True).start()


# ------------------------------------------------------------------------------------ broadcast --


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The root's value of a tensor, in a new tensor. `root_rank` is always a global rank."""
    if _compile.tracing():
        return _compile.ops().broadcast(tensor, root_rank, name or "", process_set.process_set_id)  # type: ignore[no-any-return]
    received: torch.Tensor = _autograd.broadcast(tensor, name, root_rank, process_set_id(process_set))
    return received


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Overwrites a tensor with the root's value."""
    options, set_id = Options(root=root_rank), process_set_id(process_set)
    result: torch.Tensor = Operation("broadcast", [tensor], name, options, set_id, in_place=True).run()
    return result


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `broadcast` and returns a handle."""
    options, set_id = Options(root=root_rank), process_set_id(process_set)
    return Operation("broadcast", [tensor], name, options, set_id).start()


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `broadcast_` and returns a handle."""
    options, set_id = Options(root=root_rank), process_set_id(process_set)
    return Operation("broadcast", [tensor], name, options, set_id, in_place=True).start()


# ------------------------------------------------------------------------------------- alltoall --

Splits = Union[None, torch.Tensor, Sequence[int]]


def alltoall(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
    """Sends `splits[i]` rows to member i of the set and concatenates what comes from all.

    Returns:
        The received rows; with `splits` given, also how many came from each member, as int32.
    """
    if _compile.tracing():
        given = None if splits is None else torch.as_tensor(splits, dtype=torch.int32)
        both = _compile.ops().alltoall(tensor, given, name or "", process_set.process_set_id)
        return both[0] if splits is None else (both[0], both[1])
    set_id = process_set_id(process_set)
    pair: Tuple[torch.Tensor, torch.Tensor] = _autograd.alltoall(
        tensor, _splits(splits, tensor, set_id), name, set_id
    )
    return pair[0] if splits is None else (pair[0], _beside(pair[1], splits))


def alltoall_async(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts `alltoall` and returns a handle; `synchronize` always gives (output, received_splits)."""
    set_id = process_set_id(process_set)
    options = Options(splits=_splits(splits, tensor, set_id))
    return Operation("alltoall", [tensor], name, options, set_id).start()


# -------------------------------------------------------------------------------- reducescatter --


def reducescatter(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduces a tensor and leaves each member one block of its rows; the first members get the surplus.

    `op` is Average or Sum.
    """
    wire, context = compression.compress(tensor)
    if _compile.tracing():
        reduced = _compile.ops().reducescatter(
            wire, name or "", op, prescale_factor, postscale_factor, process_set.process_set_id
        )
    else:
        options = Options(op, prescale=prescale_factor, postscale=postscale_factor)
        reduced = _autograd.reducescatter(wire, name, options, process_set_id(process_set))
    return compression.decompress(reduced, context)  # type: ignore[no-any-return]


def reducescatter_async(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts `reducescatter` and returns a handle."""
    options = Options(op, prescale=prescale_factor, postscale=postscale_factor)
    return Operation("reducescatter", [tensor], name, options, process_set_id(process_set)).start()


def grouped_reducescatter(
    tensors: Tensors,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[torch.Tensor]:
    """`reducescatter` of several tensors, none of them before all are ready on all ranks."""
    wires, contexts = _compress(compression, tensors)
    options = Options(op, prescale=prescale_factor, postscale=postscale_factor)
    reduced = _autograd.grouped_reducescatter(wires, name, options, process_set_id(process_set))
    return [compression.decompress(wire, context) for wire, context in zip(reduced, contexts)]


def grouped_reducescatter_async(
    tensors: Tensors,
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts `grouped_reducescatter` and returns a handle."""
    options = Options(op, prescale=prescale_factor, postscale=postscale_factor)
    set_id = process_set_id(process_set)
    return Operation("reducescatter", tensors, name, options, set_id, grouped=True).start()


# ------------------------------------------------------------------------------ without tensors --


def join(device: int = -1) -> int:
    """Tells the others that this rank has no more data, and waits until all ranks have joined.

    Until then the other ranks' allreduces go on; this rank counts as zeros in them.

    Args:
        device: accepted for compatibility; zeros need no device here.

    Returns:
        The rank that joined last.
    """
    handle = engine.run([engine.request(JOIN, "join.noname", UINT8, (), 0)])
    try:
        return int(engine.output(handle).value)
    finally:
        engine.release(handle)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until all members of the set have called it."""
    set_id = process_set_id(process_set)
    engine.release(engine.run([engine.request(BARRIER, "barrier.noname", UINT8, (), 0, process_set=set_id)]))


# -------------------------------------------------------------------------------------- helpers --


def _compress(compression: Any, tensors: Tensors) -> Tuple[List[torch.Tensor], List[Any]]:
    pairs = [compression.compress(tensor) for tensor in tensors]
    return [wire for wire, _ in pairs], [context for _, context in pairs]


def _splits(splits: Splits, tensor: torch.Tensor, set_id: int) -> Optional[List[int]]:
    """Checked splits; an even split is left to the engine."""
    if splits is not None:
        if not isinstance(splits, torch.Tensor):
            splits = torch.tensor(splits, dtype=torch.int32)
        if splits.dim() > 1:
            raise ValueError("alltoall expects a 1D splits tensor")
        if splits.dtype is not torch.int32:
            raise ValueError("alltoall expects splits to contain 32-bit integer elements.")
        splits = splits.tolist()
    if tensor.dim() == 0:
        return None  # refused by all ranks together
    return check_splits(splits, tensor.shape[0], place_in(set_id)[0])


def _beside(received: torch.Tensor, splits: Splits) -> torch.Tensor:
    """The received splits on the device the splits were on."""
    return received.to(splits.device) if isinstance(splits, torch.Tensor) else received


__all__ = [
    "Adasum", "Average", "Max", "Min", "Product", "Sum",
    "HorovodAllgather", "HorovodAllreduce", "HorovodAlltoall", "HorovodBroadcast",
    "HorovodGroupedAllgather", "HorovodGroupedAllreduce", "HorovodGroupedReducescatter",
    "HorovodReducescatter", "HorovodInternalError",
    "ProcessSet", "add_process_set", "global_process_set", "remove_process_set",
    "allgather", "allgather_async", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_",
    "alltoall", "alltoall_async", "barrier", "broadcast", "broadcast_", "broadcast_async",
    "broadcast_async_", "grouped_allgather", "grouped_allgather_async", "grouped_allreduce",
    "grouped_allreduce_", "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter",
    "grouped_reducescatter_async", "join", "poll", "reducescatter", "reducescatter_async",
    "sparse_allreduce_async", "synchronize",
    "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "gloo_built", "gloo_enabled",
    "init", "is_homogeneous", "is_initialized", "local_rank", "local_size", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "rank", "rocm_built", "shutdown", "size", "start_timeline",
    "stop_timeline",
    "check_installed_version", "gpu_available", "handle_average_backwards_compatibility",
    "num_rank_is_power_2", "_handle_map",
]  # fmt: skip
