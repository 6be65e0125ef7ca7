# SPDX-License-Identifier: Apache-2.0
"""Collectives on concrete jax arrays: straight into the engine, without a compiled program.

Arrays on the CPU are read in place and results are built over memory that jax adopts without a copy. Arrays
on other devices go through host memory and come back to the device they came from; _primitive.py says which
of CUDA's do not.
"""

from __future__ import annotations

import functools
import math
from typing import Any, List, Sequence, Tuple

import jax
import numpy as np

from horovod.common import copies, engine
from horovod.common.calls import Call
from horovod.common.constants import DTYPE_OF_NAME, DTYPE_SIZE
from horovod.common.verbs import Result

_ALIGNMENT = 64  # jax adopts host memory that starts on a cache line, and copies any other


def run(call: Call, arrays: Sequence[Any]) -> Tuple[List[jax.Array], List[List[int]]]:
    """Runs the collective and returns the outputs and, for alltoall, the rows received from each member."""
    fetched = [_fetch(array) for array in arrays]
    inputs = [source for source, _ in fetched]
    same = call.verb.result is Result.SAME
    outputs = [_empty(source.shape, source.dtype) if same else None for source in inputs]
    wire_names = [call.wire_name()] if len(inputs) == 1 else call.wire_names(len(inputs))
    for name, (_, copied) in zip(wire_names, fetched):
        copies.before(name, copied)
    requests = [
        call.request(
            name, dtype_number(source.dtype), source.shape, source.ctypes.data,
            0 if target is None else target.ctypes.data,
        )
        for name, source, target in zip(wire_names, inputs, outputs)
    ]  # fmt: skip
    submission = engine.run(requests, keep=(inputs, outputs))
    received: List[List[int]] = [[] for _ in inputs]
    try:
        for index, target in enumerate(outputs):
            if target is None:
                dtype = inputs[index].dtype
                buffer = engine.take(submission, index, dtype.itemsize)
                received[index] = buffer.splits
                outputs[index] = np.frombuffer(memoryview(buffer.array()), dtype=dtype).reshape(buffer.shape)
    finally:
        engine.release(submission)
    adopted = [_adopt(target, like, name) for target, like, name in zip(outputs, arrays, wire_names)]
    return adopted, received


@functools.cache
def dtype_number(dtype: Any) -> int:
    """The engine's number of an element type."""
    name = np.dtype(dtype).name
    if name not in DTYPE_OF_NAME:
        raise ValueError(f"horovod.jax does not support tensors of type {name}.")
    return DTYPE_OF_NAME[name]


def _empty(shape: Tuple[int, ...], dtype: Any) -> Any:
    nbytes = math.prod(shape) * DTYPE_SIZE[dtype_number(dtype)]
    memory = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def _fetch(array: Any) -> Tuple[Any, copies.Span]:
    """The array's elements in host memory, and how long it took to copy them there, if it did."""
    if isinstance(array, jax.Array):
        array.block_until_ready()  # computing it is no copy
    fetched, copied = copies.timed(np.asarray, array, order="C")
    return fetched, None if copied is None or _is_here(array, fetched) else copied


def _adopt(array: Any, like: Any, name: str) -> jax.Array:
    """The array as a jax.Array where `like` is."""
    where = like.sharding if isinstance(like, jax.Array) and like.committed else None
    adopted: jax.Array
    adopted, copied = copies.timed(jax.device_put, array, where, may_alias=True)
    if copied is not None and not _is_here(adopted, array):
        copies.after(name, copied)
    return adopted


def _is_here(array: Any, memory: Any) -> bool:
    """Whether a jax.Array lies in this memory of the host."""
    if not isinstance(array, jax.Array) or len(array.devices()) != 1:
        return False
    return bool(array.unsafe_buffer_pointer() == memory.ctypes.data)
