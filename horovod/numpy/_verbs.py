# SPDX-License-Identifier: Apache-2.0
"""The collectives on arrays. Each is described once; _calls.py makes the forms users call."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import numpy as np

from horovod.common import constants as c
from horovod.common import engine
from horovod.common.arguments import check_scatter_op, resolve_op
from horovod.common.names import member_names, wire_name
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.numpy import _calls
from horovod.numpy._arrays import Array, address, as_array, dense, dtype_number, from_owned
from horovod.numpy._calls import Call


class _Reduced:
    """One tensor of an operation whose result has the shape of its input, in place or not."""

    __slots__ = ("array", "given", "in_place", "input", "output")

    def __init__(self, given: Any, in_place: bool) -> None:
        array = given if type(given) is np.ndarray else as_array(given)
        self.given = given
        self.array = array
        self.in_place = in_place
        self.input = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        if not in_place:
            self.output = np.empty_like(self.input)
            return
        if not isinstance(given, np.ndarray) and not np.shares_memory(array, as_array(given)):
            raise TypeError(f"{type(given).__name__} has no memory to write into; use the form without '_'")
        if not array.flags.writeable:
            raise ValueError("the array is read-only; use the form without '_'")
        self.output = self.input

    def request(
        self, kind: int, name: str, op: int, root: int, prescale: float, postscale: float, process_set: int
    ) -> Any:
        source = self.input
        target = address(self.output)
        return engine.request(
            kind, name, dtype_number(source.dtype), source.shape,
            target if source is self.output else address(source), target,
            op=op, root=root, prescale=prescale, postscale=postscale, process_set=process_set,
        )  # fmt: skip

    def result(self, handle: int = 0) -> Any:
        if self.in_place:
            if self.output is not self.array:  # worked on a dense copy of a strided array
                self.array[...] = self.output
            return self.given
        return self.output if self.output.ndim or isinstance(self.given, np.ndarray) else self.output[()]


def _allreduce(
    tensor: Any,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    in_place: bool = False,
) -> Call:
    """Reduces an array over all ranks of a process set, element by element.

    Args:
        tensor: array, list, number, or anything with the buffer protocol; the same shape on all ranks.
        average: old spelling of op=Average (True) or op=Sum (False).
        name: matched across ranks; by default operations are matched in the order of their calls.
        op: Average (default), Sum, Adasum, Min, Max or Product.
        prescale_factor, postscale_factor: multiplied before and after the reduction.
        process_set: the ranks that take part.
    """
    number = process_set_id(process_set)
    one = _Reduced(tensor, in_place)
    request = one.request(
        c.ALLREDUCE, wire_name("allreduce", name, number), resolve_op(op, average), -1,
        prescale_factor, postscale_factor, number,
    )  # fmt: skip
    return Call((request,), one.result, one)


def _grouped_allreduce(
    tensors: Sequence[Any],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    in_place: bool = False,
) -> Call:
    """Reduces several arrays as one atomic operation; arguments as in `allreduce`."""
    number = process_set_id(process_set)
    op = resolve_op(op, average)
    group = [_Reduced(tensor, in_place) for tensor in tensors]
    named = member_names(wire_name("grouped_allreduce", name, number), len(group))
    requests = [
        one.request(c.ALLREDUCE, n, op, -1, prescale_factor, postscale_factor, number)
        for one, n in zip(group, named)
    ]
    return Call(requests, lambda handle: [one.result() for one in group], group, group=True)


def _broadcast(
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    *,
    in_place: bool = False,
) -> Call:
    """Sends the root's array to all ranks of a process set.

    Args:
        tensor: array of the same shape and type on all ranks; only the root's values count.
        root_rank: global rank of the sender.
        name, process_set: as in `allreduce`.
    """
    number = process_set_id(process_set)
    one = _Reduced(tensor, in_place)
    request = one.request(
        c.BROADCAST, wire_name("broadcast", name, number), c.Sum, root_rank, 1.0, 1.0, number
    )
    return Call((request,), one.result, one)


def _new_shape(kind: int, named: Sequence[str], arrays: Sequence[Array], single: bool, **more: Any) -> Call:
    """A call whose results have shapes that only the engine knows."""
    arrays = [dense(array) for array in arrays]
    requests = [
        engine.request(kind, n, dtype_number(array.dtype), array.shape, address(array), **more)
        for n, array in zip(named, arrays)
    ]

    def one(handle: int, index: int) -> Array:
        dtype = arrays[index].dtype
        return from_owned(engine.take(handle, index, dtype.itemsize), dtype)

    if single:
        return Call(requests, lambda handle: one(handle, 0), arrays, owned=True)
    return Call(
        requests, lambda handle: [one(handle, i) for i in range(len(arrays))], arrays, owned=True, group=True
    )


def _allgather(tensor: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> Call:
    """Concatenates the arrays of all ranks along the first dimension, which may differ between them.

    Args:
        tensor: array of at least one dimension; the others must be equal on all ranks.
        name, process_set: as in `allreduce`.
    """
    number = process_set_id(process_set)
    named = [wire_name("allgather", name, number)]
    return _new_shape(c.ALLGATHER, named, [as_array(tensor)], True, process_set=number)


def _grouped_allgather(
    tensors: Sequence[Any], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Call:
    """Gathers several arrays as one atomic operation; arguments as in `allgather`."""
    number = process_set_id(process_set)
    named = member_names(wire_name("grouped_allgather", name, number), len(tensors))
    return _new_shape(c.ALLGATHER, named, [as_array(t) for t in tensors], False, process_set=number)


def _reducescatter(
    tensor: Any,
    name: Optional[str] = None,
    op: int = c.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Call:
    """Reduces over all ranks and leaves each its own block of the first dimension.

    Args:
        tensor: array of at least one dimension, the same shape on all ranks.
        op: Average or Sum.
        name, process_set, prescale_factor, postscale_factor: as in `allreduce`.
    """
    number = process_set_id(process_set)
    return _new_shape(
        c.REDUCESCATTER, [wire_name("reducescatter", name, number)], [_not_scalar(tensor)], True,
        op=check_scatter_op(op), prescale=prescale_factor, postscale=postscale_factor, process_set=number,
    )  # fmt: skip


def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: int = c.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Call:
    """Reduces and scatters several arrays as one atomic operation; arguments as in `reducescatter`."""
    number = process_set_id(process_set)
    named = member_names(wire_name("grouped_reducescatter", name, number), len(tensors))
    return _new_shape(
        c.REDUCESCATTER, named, [_not_scalar(t) for t in tensors], False,
        op=check_scatter_op(op), prescale=prescale_factor, postscale=postscale_factor, process_set=number,
    )  # fmt: skip


def _not_scalar(tensor: Any) -> Array:
    array = as_array(tensor)
    if array.ndim == 0:
        raise ValueError("Reducescatter does not support scalar inputs")
    return array


def _alltoall(
    tensor: Any,
    splits: Optional[Any] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Call:
    """Sends each rank a slice of the first dimension, and receives one from each.

    Args:
        tensor: array of at least one dimension; the others must be equal on all ranks.
        splits: rows for each rank of the set; None sends each the same number.
        name, process_set: as in `allreduce`.

    Returns:
        The received rows and, if splits were given (always, for `alltoall_async`), how many came from each.
    """
    number = process_set_id(process_set)
    rows: Optional[List[int]] = None
    if splits is not None:
        array = np.asarray(splits)
        if array.ndim != 1:
            raise ValueError("alltoall expects a 1D splits tensor")
        if array.size and array.dtype.kind not in "iu":
            raise ValueError("alltoall expects splits to contain 32-bit integer elements.")
        rows = [int(s) for s in array] or None
    call = _new_shape(
        c.ALLTOALL, [wire_name("alltoall", name, number)], [as_array(tensor)], True, splits=rows,
        process_set=number,
    )  # fmt: skip

    def both(handle: int) -> Any:
        received = np.array(engine.output(handle).splits_list(), np.int32)
        return call.finish(handle), received

    return call._replace(finish=both)


def alltoall(
    tensor: Any,
    splits: Optional[Any] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    both = _calls.run(_alltoall(tensor, splits, name, process_set))
    return both[0] if splits is None else both


alltoall.__doc__ = _alltoall.__doc__


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all ranks of the process set have called it."""
    number = process_set_id(process_set)
    engine.run_released(engine.request(c.BARRIER, "barrier.noname", c.UINT8, (), 0, process_set=number))


def join() -> int:
    """Says that this rank has no more data, and waits until all ranks say so.

    Meanwhile the others' allreduces go on, with zeros from this rank.

    Returns:
        The rank that joined last.
    """
    handle = engine.run([engine.request(c.JOIN, "join.noname", c.UINT8, (), 0)])
    try:
        return int(engine.output(handle).value)
    finally:
        engine.release(handle)


allreduce = _calls.blocking(_allreduce)
allreduce_ = _calls.blocking_in_place(_allreduce)
allreduce_async = _calls.asynchronous(_allreduce)
allreduce_async_ = _calls.asynchronous_in_place(_allreduce)
grouped_allreduce = _calls.blocking(_grouped_allreduce)
grouped_allreduce_ = _calls.blocking_in_place(_grouped_allreduce)
grouped_allreduce_async = _calls.asynchronous(_grouped_allreduce)
grouped_allreduce_async_ = _calls.asynchronous_in_place(_grouped_allreduce)
broadcast = _calls.blocking(_broadcast)
broadcast_ = _calls.blocking_in_place(_broadcast)
broadcast_async = _calls.asynchronous(_broadcast)
broadcast_async_ = _calls.asynchronous_in_place(_broadcast)
allgather = _calls.blocking(_allgather)
allgather_async = _calls.asynchronous(_allgather)
grouped_allgather = _calls.blocking(_grouped_allgather)
grouped_allgather_async = _calls.asynchronous(_grouped_allgather)
reducescatter = _calls.blocking(_reducescatter)
reducescatter_async = _calls.asynchronous(_reducescatter)
grouped_reducescatter = _calls.blocking(_grouped_reducescatter)
grouped_reducescatter_async = _calls.asynchronous(_grouped_reducescatter)
alltoall_async = _calls.asynchronous(_alltoall)
