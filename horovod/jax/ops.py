# SPDX-License-Identifier: Apache-2.0
"""The collectives on jax arrays and pytrees.

Every verb works on concrete arrays and inside `jit`, `grad`, `scan`, `cond` and `vmap`. A pytree is one
grouped operation on its leaves: the ranks agree on it once and its tensors travel together.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Type

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common import engine
from horovod.common.arguments import check_scatter_op, check_splits, resolve_op
from horovod.common.basics import basics
from horovod.common.constants import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BARRIER,
    BROADCAST,
    JOIN,
    KIND_NAME,
    REDUCESCATTER,
    UINT8,
    Adasum,
    Average,
)
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.jax import _gradients
from horovod.jax._call import Call
from horovod.jax._compat import in_program
from horovod.jax.compression import Compression, Compressor


def allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduces a tensor, or every leaf of a pytree, over the ranks; all ranks get the result.

    Args:
        tensor: array or pytree of arrays, equal in shapes and types on all ranks.
        average: former name of `op`: True is Average, False is Sum.
        name: matched across the ranks; unnamed operations are matched by their order in the program.
        compression: how to shrink floating tensors for the transfer, e.g. `Compression.bf16`.
        op: Average (default), Sum, Adasum, Min, Max or Product.
        prescale_factor, postscale_factor: multiply before and after the reduction.
        process_set: the ranks that take part.

    Returns:
        The same structure with reduced tensors.
    """
    reduction = resolve_op(op, average)
    leaves, structure = jax.tree.flatten(tensor)
    arrays = [jnp.asarray(leaf) for leaf in leaves]
    if reduction == Adasum:
        _check_adasum(arrays)
    call = _call(ALLREDUCE, name, process_set, op=reduction)
    call = call._replace(prescale=float(prescale_factor), postscale=float(postscale_factor))
    sent = [compression.compress(array) for array in arrays]
    reduced = _gradients.collective(call, [array for array, _ in sent])
    return jax.tree.unflatten(
        structure, [compression.decompress(r, ctx) for r, (_, ctx) in zip(reduced, sent)]
    )


def grouped_allreduce(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> List[Any]:
    """Allreduces a list of tensors as one operation; see `allreduce`."""
    reduction = resolve_op(op, average)
    reduced = allreduce(
        list(tensors), None, name, compression, reduction, prescale_factor, postscale_factor, process_set
    )
    return list(reduced)


def allgather(tensor: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Any:
    """Concatenates the ranks' tensors along the first axis, in rank order.

    Outside of jit the ranks' first dimensions may differ; inside they must be equal. Leaves of a pytree are
    gathered as one operation.
    """
    leaves, structure = jax.tree.flatten(tensor)
    arrays = _with_rows(ALLGATHER, leaves)
    return jax.tree.unflatten(structure, _gradients.collective(_call(ALLGATHER, name, process_set), arrays))


def grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> List[Any]:
    """Allgathers a list of tensors as one operation; see `allgather`."""
    return list(allgather(list(tensors), name, process_set))


def broadcast(
    tensor: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Gives every rank the tensor, or pytree, of `root_rank` (a global rank)."""
    leaves, structure = jax.tree.flatten(tensor)
    call = _call(BROADCAST, name, process_set)._replace(root=int(root_rank))
    if root_rank not in (process_set.ranks or []):
        raise ValueError(f"broadcast received invalid root rank {root_rank} for provided process set")
    return jax.tree.unflatten(structure, _gradients.collective(call, [jnp.asarray(leaf) for leaf in leaves]))


def alltoall(
    tensor: Any,
    splits: Optional[Sequence[int]] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends a slice of the first axis to every rank and concatenates the slices received, in rank order.

    Args:
        splits: rows for each rank; None sends equal shares. Inside jit the entries must be equal.

    Returns:
        The output; with `splits`, also the rows received from each rank (int32).
    """
    (array,) = _with_rows(ALLTOALL, [tensor])
    call = _call(ALLTOALL, name, process_set)
    if splits is not None:
        splits = [int(n) for n in np.asarray(splits).reshape(-1)]
    checked = check_splits(splits, array.shape[0], call.members)
    call = call._replace(splits=None if checked is None else tuple(checked))
    output, received = _gradients.alltoall(call, array)
    return output if splits is None else (output, received)


def reducescatter(
    tensor: Any,
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces the tensor, or every leaf of a pytree, and leaves each rank its share of the first axis.

    With d rows and n ranks every rank gets d // n rows, and the first d % n ranks one more.
    """
    leaves, structure = jax.tree.flatten(tensor)
    arrays = _with_rows(REDUCESCATTER, leaves)
    call = _call(REDUCESCATTER, name, process_set, op=check_scatter_op(op))
    call = call._replace(prescale=float(prescale_factor), postscale=float(postscale_factor))
    sent = [compression.compress(array) for array in arrays]
    reduced = _gradients.collective(call, [array for array, _ in sent])
    return jax.tree.unflatten(
        structure, [compression.decompress(r, ctx) for r, (_, ctx) in zip(reduced, sent)]
    )


def grouped_reducescatter(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    compression: Type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[Any]:
    """Reducescatters a list of tensors as one operation; see `reducescatter`."""
    reduced = reducescatter(
        list(tensors), name, compression, op, process_set, prescale_factor, postscale_factor
    )
    return list(reduced)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every rank of the set has called it. Not available inside jit."""
    _outside_of_programs("barrier")
    number = _call(BARRIER, None, process_set).process_set
    engine.release(engine.run([engine.request(BARRIER, "barrier.noname", UINT8, (), 0, process_set=number)]))


def join() -> int:
    """Says that this rank has no more data: until all ranks have joined, it takes part in the others'
    allreduces with zeros. Returns the rank that joined last. Not available inside jit."""
    _outside_of_programs("join")
    # Programs still running may hold collectives of this rank.
    jax.effects_barrier()  # type: ignore[no-untyped-call]
    handle = engine.run([engine.request(JOIN, "join.noname", UINT8, (), 0)])
    try:
        return int(engine.output(handle, 0).value)
    finally:
        engine.release(handle)


def _call(kind: int, name: Optional[str], process_set: ProcessSet, op: int = 1) -> Call:
    basics.size()  # says so if Horovod is not initialised
    number = process_set_id(process_set)
    if not process_set.included():
        raise ValueError(
            f"{KIND_NAME[kind].capitalize()}: Rank {basics.rank()} is not a member of the provided process "
            "set."
        )
    if number == 0:
        return Call(kind, name, op=op, members=basics.size(), position=basics.rank())
    members = process_set.ranks or []
    return Call(
        kind, name, op=op, process_set=number, members=len(members), position=members.index(basics.rank())
    )


def _with_rows(kind: int, leaves: Sequence[Any]) -> List[Any]:
    arrays = [jnp.asarray(leaf) for leaf in leaves]
    for array in arrays:
        if array.ndim == 0:
            raise ValueError(f"{KIND_NAME[kind].capitalize()} does not support scalar inputs")
    return arrays


def _check_adasum(arrays: Sequence[Any]) -> None:
    for array in arrays:
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise ValueError(f"Adasum needs floating-point tensors, not {array.dtype}; use hvd.Sum.")


def _outside_of_programs(verb: str) -> None:
    if in_program():
        raise RuntimeError(f"hvd.{verb}() cannot be part of a jitted function; call it outside.")


__all__: Tuple[str, ...] = (
    "allgather", "allreduce", "alltoall", "barrier", "broadcast", "grouped_allgather", "grouped_allreduce",
    "grouped_reducescatter", "join", "reducescatter",
)  # fmt: skip
