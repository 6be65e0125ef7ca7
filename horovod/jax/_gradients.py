# SPDX-License-Identifier: Apache-2.0
"""Collectives that jax can differentiate.

    forward                 backward, on the incoming gradient g
    allreduce               the same allreduce
    broadcast               allreduce Average; zero on ranks other than the root
    allgather               allreduce Average, then this rank's rows
    alltoall                alltoall with the received splits
    reducescatter Average   allgather of g
    reducescatter Sum       allgather of g times the number of members

Integer tensors have no gradient and are left out of the backward operation.
"""

from __future__ import annotations

import functools
from typing import Any, List, Sequence, Tuple

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common.basics import basics
from horovod.common.constants import ALLGATHER, ALLREDUCE, BROADCAST, Average, Sum
from horovod.jax import _eager
from horovod.jax._call import Call
from horovod.jax._compat import in_program, is_concrete
from horovod.jax._primitive import bind

Arrays = Tuple[Any, ...]


def collective(call: Call, arrays: Sequence[Any]) -> List[Any]:
    """Runs the collective on the arrays as one group, differentiably."""
    if not arrays:
        return []
    if is_concrete(
        arrays
    ):  # the short way: jax takes ten times as long to find out that it has nothing to do
        return _eager.run(call, arrays)[0]
    return list(_collective(call, tuple(arrays)))


def alltoall(call: Call, array: Any) -> Tuple[Any, Any]:
    """Alltoall of one array, differentiably; also returns the rows received from each member."""
    output, received = _alltoall(call, array)
    return output, received


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _collective(call: Call, arrays: Arrays) -> Arrays:
    return tuple(bind(call, arrays))


def _forward(call: Call, arrays: Arrays) -> Tuple[Arrays, Tuple[Any, Any]]:
    outputs = tuple(bind(call, arrays))
    shapes = tuple(_shape_only(array) for array in arrays)
    starts = _first_rows(call, arrays) if call.kind == ALLGATHER else None
    return outputs, (shapes, starts)


def _backward(call: Call, saved: Tuple[Any, Any], gradients: Arrays) -> Tuple[Arrays]:
    shapes, starts = saved
    chosen = [i for i, g in enumerate(gradients) if g.dtype != jax.dtypes.float0]
    given = [gradients[i] for i in chosen]
    if not given:
        return (tuple(None for _ in gradients),)

    if call.kind == ALLREDUCE:
        reduced = bind(call.for_gradient(), given)
    elif call.kind == BROADCAST:
        reduced = bind(call.for_gradient(kind=ALLREDUCE, op=Average, root=-1), given)
        if basics.rank() != call.root:
            reduced = [jnp.zeros_like(g) for g in reduced]
    elif call.kind == ALLGATHER:
        totals = bind(call.for_gradient(kind=ALLREDUCE, op=Average, rows=None), given)
        reduced = [
            jax.lax.dynamic_slice_in_dim(total, starts[i], shapes[i].shape[0])
            for i, total in zip(chosen, totals)
        ]
    else:
        reduced = _gather_scattered(call, [shapes[i].shape[0] for i in chosen], given)

    result: List[Any] = [None] * len(gradients)
    for i, g in zip(chosen, reduced):
        result[i] = g
    return (tuple(result),)


_collective.defvjp(_forward, _backward)


def _gather_scattered(call: Call, rows: Sequence[int], gradients: Sequence[Any]) -> List[Any]:
    factor = call.prescale * call.postscale * (call.members if call.op == Sum else 1)
    scaled = [g if factor == 1 else g * jnp.asarray(factor, g.dtype) for g in gradients]
    gather = call.for_gradient(kind=ALLGATHER, op=Sum, prescale=1.0, postscale=1.0)
    if len(set(rows)) == 1:
        return bind(gather._replace(rows=rows[0]), scaled)
    outputs = []
    for i, (n, g) in enumerate(zip(rows, scaled)):
        name = None if gather.name is None else f"{gather.name}.{i}"
        outputs.extend(bind(gather._replace(rows=n, name=name), [g]))
    return outputs


def _shape_only(array: Any) -> Any:
    """An array without elements that remembers the number of rows: it costs nothing to keep for later."""
    return jnp.zeros((array.shape[0] if array.ndim else 1, 0), jnp.float32)


def _first_rows(call: Call, arrays: Arrays) -> List[Any]:
    """Where this rank's rows start in the gathered tensors. Outside of programs ranks may differ in rows."""
    mine = [array.shape[0] for array in arrays]
    if in_program():
        return [np.int32(rows * call.position) for rows in mine]
    exchange = call.for_gradient(kind=ALLGATHER, rows=None)
    (everyone,), _ = _eager.run(exchange, [np.array([mine], np.int64)])
    return [np.int32(n) for n in np.asarray(everyone)[: call.position].sum(axis=0)]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _alltoall(call: Call, array: Any) -> Tuple[Any, Any]:
    if in_program():
        (output,) = bind(call, [array])
        received = [output.shape[0] // call.members] * call.members
    else:
        (output,), (received,) = _eager.run(call, [array])
    return output, jnp.asarray(received, jnp.int32)


def _alltoall_forward(call: Call, array: Any) -> Tuple[Tuple[Any, Any], Tuple[Any, Any]]:
    output, received = _alltoall(call, array)
    return (output, received), (received, _shape_only(array))


def _alltoall_backward(call: Call, saved: Tuple[Any, Any], gradients: Tuple[Any, Any]) -> Tuple[Any]:
    received, rows = saved
    splits = call.splits  # equal inside a program, so what was sent is what was received
    if splits is not None and not in_program():
        splits = tuple(int(n) for n in np.asarray(received))
    gradient, _ = _alltoall(call.for_gradient(splits=splits), gradients[0])
    missing = rows.shape[0] - gradient.shape[0]  # rows beyond the sum of the splits were not sent
    padding = [(0, missing)] + [(0, 0)] * (gradient.ndim - 1)
    return (jnp.pad(gradient, padding) if missing else gradient,)


_alltoall.defvjp(_alltoall_forward, _alltoall_backward)
