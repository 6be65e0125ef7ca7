# SPDX-License-Identifier: Apache-2.0
"""The collectives on NDArray and mx.np arrays.

Allreduce and broadcast are operations of MXNet's own dependency engine: they return at once, and whatever
uses the result waits for it. The others return when they are done, because the size of their result is not
known before.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import mxnet as mx

from horovod.common import engine, names
from horovod.common.arguments import check_splits, resolve_op
from horovod.common.basics import basics
from horovod.common.constants import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BROADCAST,
    KIND_NAME,
    REDUCESCATTER,
    Adasum,
    Average,
    Sum,
)
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.mxnet import _push


def allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: Optional[int] = None,
) -> Any:
    """Reduces the tensor over the ranks into a new array, the same on all ranks.

    Args:
        tensor: dense NDArray or mx.np array, of one shape and type on all ranks.
        average: former name of `op`: True is Average, False is Sum.
        name: matched across the ranks; unnamed operations are matched by their order.
        priority: higher ones are started first by MXNet's engine.
        prescale_factor, postscale_factor: multiply before and after the reduction.
        process_set: the ranks that take part.
        op: Average (default), Sum, Min, Max or Product.
    """
    output = _push.empty_like(tensor, tensor.shape)
    reduction = _reduction(op, average)
    _allreduce(
        [tensor],
        [output],
        "allreduce",
        name,
        priority,
        prescale_factor,
        postscale_factor,
        process_set,
        reduction,
    )
    return output


def allreduce_(
    tensor: Any,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: Optional[int] = None,
) -> Any:
    """As `allreduce`, into the tensor itself, which is returned."""
    reduction = _reduction(op, average)
    _allreduce(
        [tensor],
        [tensor],
        "allreduce",
        name,
        priority,
        prescale_factor,
        postscale_factor,
        process_set,
        reduction,
    )
    return tensor


def grouped_allreduce(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: Optional[int] = None,
) -> Sequence[Any]:
    """Allreduces several tensors as one operation into new arrays; see `allreduce`."""
    if not tensors:
        return tensors
    outputs = [_push.empty_like(tensor, tensor.shape) for tensor in tensors]
    reduction = _reduction(op, average)
    prefix = "grouped_allreduce"
    _allreduce(
        tensors, outputs, prefix, name, priority, prescale_factor, postscale_factor, process_set, reduction
    )
    return outputs


def grouped_allreduce_(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: Optional[int] = None,
) -> Sequence[Any]:
    """As `grouped_allreduce`, into the tensors themselves, which are returned."""
    if not tensors:
        return tensors
    reduction = _reduction(op, average)
    prefix = "grouped_allreduce"
    _allreduce(
        tensors, tensors, prefix, name, priority, prescale_factor, postscale_factor, process_set, reduction
    )
    return tensors


def broadcast(
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The tensor of `root_rank` (a global rank), in a new array on every rank."""
    output = _push.empty_like(tensor, tensor.shape)
    _broadcast(tensor, output, root_rank, name, priority, process_set)
    return output


def broadcast_(
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """As `broadcast`, into the tensor itself, which is returned."""
    _broadcast(tensor, tensor, root_rank, name, priority, process_set)
    return tensor


def allgather(
    tensor: Any, name: Optional[str] = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Any:
    """The ranks' tensors concatenated along the first axis, in rank order; first dimensions may differ."""
    assert isinstance(tensor, mx.nd.NDArray)
    outputs, _ = _run_now(ALLGATHER, [tensor], "allgather", name, process_set)
    return outputs[0]


def grouped_allgather(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Sequence[Any]:
    """Allgathers several tensors as one operation; see `allgather`."""
    assert all(isinstance(tensor, mx.nd.NDArray) for tensor in tensors)
    if not tensors:
        return tensors
    return _run_now(ALLGATHER, tensors, "grouped_allgather", name, process_set)[0]


def alltoall(
    tensor: Any,
    splits: Optional[Sequence[int]] = None,
    name: Optional[str] = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends a slice of the first axis to every rank and concatenates the slices received, in rank order.

    Args:
        splits: rows for each rank, a sequence or int32 array; None sends equal shares.

    Returns:
        The output; with `splits`, also the rows received from each rank (int32).
    """
    assert isinstance(tensor, mx.nd.NDArray)
    rows = None if splits is None else _split_list(splits)
    with _push.mxnet_errors():
        checked = check_splits(rows, tensor.shape[0], process_set.size() or 1)
    outputs, received = _run_now(ALLTOALL, [tensor], "alltoall", name, process_set, splits=checked)
    if splits is None:
        return outputs[0]
    return outputs[0], mx.nd.array(received[0], dtype="int32")


def reducescatter(
    tensor: Any,
    op: int = Average,
    name: Optional[str] = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduces the tensor and leaves each rank its share of the first axis: d // n rows, the first d % n ranks
    one more."""
    assert op in [Average, Sum]
    assert isinstance(tensor, mx.nd.NDArray)
    if tensor.ndim == 0:
        raise ValueError("reducescatter does not support scalar inputs")
    outputs, _ = _run_now(
        REDUCESCATTER, [tensor], "reducescatter", name, process_set,
        op=op, prescale=float(prescale_factor), postscale=float(postscale_factor),
    )  # fmt: skip
    return outputs[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    op: int = Average,
    name: Optional[str] = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Sequence[Any]:
    """Reducescatters several tensors as one operation; see `reducescatter`."""
    assert op in [Average, Sum]
    assert all(isinstance(tensor, mx.nd.NDArray) for tensor in tensors)
    if any(tensor.ndim == 0 for tensor in tensors):
        raise ValueError(
            "groued_reducescatter does not support scalar inputs"
        )  # sic: scripts match this text
    if not tensors:
        return tensors
    outputs, _ = _run_now(
        REDUCESCATTER, tensors, "grouped_reducescatter", name, process_set,
        op=op, prescale=float(prescale_factor), postscale=float(postscale_factor),
    )  # fmt: skip
    return outputs


def _reduction(op: Optional[int], average: Optional[bool]) -> int:
    reduction = resolve_op(op, average)
    assert reduction != Adasum, "Adasum is not supported by horovod.mxnet"
    return reduction


def _allreduce(
    inputs: Sequence[Any], outputs: Sequence[Any], prefix: str, name: Optional[str], priority: int,
    prescale: float, postscale: float, process_set: ProcessSet, op: int,
) -> None:  # fmt: skip
    with _push.mxnet_errors():
        number = _checked_set(ALLREDUCE, process_set)
        wire_names = _names(prefix, name, len(inputs), number)
        requests = [
            engine.request(
                ALLREDUCE, wire_name, _push.dtype_number(tensor), tensor.shape, 0, 0, op=op,
                prescale=float(prescale), postscale=float(postscale), process_set=number,
            )
            for wire_name, tensor in zip(wire_names, inputs)
        ]  # fmt: skip
        for tensor in inputs:
            _push.check_dense(tensor)
    _push.push(requests, inputs, outputs, priority)


def _broadcast(
    source: Any, target: Any, root_rank: int, name: Optional[str], priority: int, process_set: ProcessSet
) -> None:
    with _push.mxnet_errors():
        number = _checked_set(BROADCAST, process_set)
        if root_rank not in (process_set.ranks or []):
            raise ValueError(f"broadcast received invalid root rank {root_rank} for provided process set")
        (wire_name,) = _names("broadcast", name, 1, number)
        dtype = _push.dtype_number(source)
        _push.check_dense(source)
        made = engine.request(
            BROADCAST, wire_name, dtype, source.shape, 0, 0, root=root_rank, process_set=number
        )
    _push.push([made], [source], [target], priority)


def _run_now(
    kind: int,
    tensors: Sequence[Any],
    prefix: str,
    name: Optional[str],
    process_set: ProcessSet,
    **options: Any,
) -> Tuple[List[Any], List[List[int]]]:
    with _push.mxnet_errors():
        number = _checked_set(kind, process_set)
        for tensor in tensors:
            _push.check_dense(tensor)
        requests = [
            engine.request(
                kind, wire_name, _push.dtype_number(tensor), tensor.shape, _push.address(tensor),
                process_set=number, **options,
            )
            for wire_name, tensor in zip(_names(prefix, name, len(tensors), number), tensors)
        ]  # fmt: skip
        return _push.run(requests, tensors)


def _names(prefix: str, name: Optional[str], count: int, process_set: int) -> List[str]:
    base = names.wire_name(prefix, name if isinstance(name, str) else None, process_set)
    return names.member_names(base, count) if prefix.startswith("grouped_") else [base]


def _checked_set(kind: int, process_set: ProcessSet) -> int:
    """The set's number, after the checks that need no other rank."""
    basics.size()  # says so if Horovod is not initialised
    number = process_set_id(process_set)
    if not process_set.included():
        raise ValueError(
            f"{KIND_NAME[kind].capitalize()}: Rank {basics.rank()} is not a member of the provided process "
            "set."
        )
    return number


def _split_list(splits: Any) -> List[int]:
    values = splits.asnumpy().tolist() if isinstance(splits, mx.nd.NDArray) else splits
    return [int(rows) for rows in values]
