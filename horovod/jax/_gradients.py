# SPDX-License-Identifier: Apache-2.0
"""Collectives that jax can differentiate; what their gradients are is in horovod/common/gradients.py.

Integer tensors have no gradient and are left out of the backward operation.
"""

from __future__ import annotations

import functools
from typing import Any, List, Optional, Sequence, Tuple

import jax
import jax.numpy as jnp
import numpy as np

from horovod.common import gradients
from horovod.common.calls import Call
from horovod.common.gradients import Saved
from horovod.common.members import place_in
from horovod.common.verbs import Result
from horovod.jax import _eager
from horovod.jax._compat import in_program, is_concrete
from horovod.jax._primitive import bind, run

Arrays = Tuple[Any, ...]


def collective(call: Call, arrays: Sequence[Any]) -> List[Any]:
    """Runs the collective on the arrays as one group, differentiably.

    Alltoall of one array gives its output and the rows received from each member.
    """
    if not arrays:
        return []
    # The short way: jax takes ten times as long to find out that it has nothing to do.
    if is_concrete(arrays) and call.verb.result is not Result.EXCHANGED:
        return run(call, arrays)
    return list(_collective(call, tuple(arrays)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _collective(call: Call, arrays: Arrays) -> Arrays:
    if call.verb.result is not Result.EXCHANGED:
        return tuple(bind(call, arrays))
    if in_program():
        (output,) = bind(call, arrays)
        members = place_in(call.process_set, call.verb)[0]
        received = [output.shape[0] // members] * members
    else:
        (output,), (received,) = _eager.run(call, arrays)
    return output, jnp.asarray(received, jnp.int32)


def _forward(call: Call, arrays: Arrays) -> Tuple[Arrays, Tuple[Any, Any, Any]]:
    outputs = _collective(call, arrays)
    shapes = tuple(_shape_only(array) for array in arrays)
    starts = _first_rows(call, arrays) if call.verb.result is Result.GATHERED else None
    received = outputs[1] if call.verb.result is Result.EXCHANGED else None
    return outputs, (shapes, starts, received)


def _backward(call: Call, saved: Tuple[Any, Any, Any], grads: Arrays) -> Tuple[Arrays]:
    shapes, starts, received = saved
    chosen = [i for i in range(len(shapes)) if grads[i].dtype != jax.dtypes.float0]
    result: List[Any] = [None] * len(shapes)
    if chosen:
        toolkit = _Toolkit(None if starts is None else [starts[i] for i in chosen])
        known = Saved([shapes[i].shape[0] for i in chosen], _splits_back(call, received))
        own = gradients.backward(toolkit, call, [grads[i] for i in chosen], known)
        for i, gradient in zip(chosen, own):
            result[i] = gradient
    return (tuple(result),)


_collective.defvjp(_forward, _backward)


class _Toolkit:
    """What backward does with jax arrays."""

    def __init__(self, starts: Optional[List[Any]]) -> None:
        self._starts = starts or []

    def run(self, call: Call, tensors: Sequence[Any]) -> List[Any]:
        return list(_collective(call, tuple(tensors)))[: len(tensors)]

    def zeros(self, tensor: Any) -> Any:
        return jnp.zeros_like(tensor)

    def scaled(self, tensor: Any, factor: float) -> Any:
        return tensor * jnp.asarray(factor, tensor.dtype)

    def own_rows(self, call: Call, gathered: Sequence[Any], rows: Sequence[int]) -> List[Any]:
        return [
            jax.lax.dynamic_slice_in_dim(total, start, own)
            for total, start, own in zip(gathered, self._starts, rows)
        ]

    def padded(self, tensor: Any, rows: int) -> Any:
        missing = rows - tensor.shape[0]
        return jnp.pad(tensor, [(0, missing)] + [(0, 0)] * (tensor.ndim - 1)) if missing else tensor


def _splits_back(call: Call, received: Any) -> Optional[Tuple[int, ...]]:
    """By which splits alltoall's gradient goes back: equal in a program, so as it came."""
    if received is None or call.splits is None or in_program():
        return None if call.splits is None else tuple(call.splits)
    return tuple(int(n) for n in np.asarray(received))


def _shape_only(array: Any) -> Any:
    """An array without elements that remembers the number of rows: it costs nothing to keep for later."""
    return jnp.zeros((array.shape[0] if array.ndim else 1, 0), jnp.float32)


def _first_rows(call: Call, arrays: Arrays) -> List[Any]:
    """Where this rank's rows start in the gathered tensors. Outside of programs ranks may differ in rows."""
    mine = [array.shape[0] for array in arrays]
    position = place_in(call.process_set, call.verb)[1]
    if in_program():
        return [np.int32(rows * position) for rows in mine]
    exchange = call.for_gradient(call.verb)
    (everyone,), _ = _eager.run(exchange, [np.array([mine], np.int64)])
    return [np.int32(n) for n in np.asarray(everyone)[:position].sum(axis=0)]
