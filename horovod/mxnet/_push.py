# SPDX-License-Identifier: Apache-2.0
"""From NDArrays to the engine: through MXNet's dependency engine or, where sizes are not known, at once."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from typing import Any, Iterator, List, Sequence, Tuple

import mxnet as mx
import numpy as np
from mxnet.base import MXNetError

from horovod.common import _native, copies, engine
from horovod.common._native import Request
from horovod.common.constants import DTYPE_OF_NAME
from horovod.common.exceptions import HorovodInternalError

_NumpyArray = mx.np.ndarray  # mx.np is MXNet's own numpy


@contextlib.contextmanager
def mxnet_errors() -> Iterator[None]:
    """Engine errors as the exception MXNet users catch."""
    try:
        yield
    except (HorovodInternalError, ValueError) as error:
        raise MXNetError(str(error)) from error


def dtype_number(tensor: Any) -> int:
    """The engine's number of the tensor's element type."""
    name = np.dtype(tensor.dtype).name
    if name not in DTYPE_OF_NAME:
        raise ValueError(f"horovod.mxnet does not support tensors of type {name}.")
    return DTYPE_OF_NAME[name]


def check_dense(tensor: Any) -> None:
    """Refuses what the engine cannot address."""
    if getattr(tensor, "stype", "default") != "default":
        raise ValueError(f"horovod.mxnet works on dense arrays only, not on {tensor.stype!r} ones.")


def empty_like(tensor: Any, shape: Tuple[int, ...]) -> Any:
    """A new array of this shape, of the kind, type and place of `tensor`."""
    make = mx.np.empty if isinstance(tensor, _NumpyArray) else mx.nd.empty
    return make(shape, ctx=tensor.context, dtype=tensor.dtype)


def push(requests: Sequence[Request], inputs: Sequence[Any], outputs: Sequence[Any], priority: int) -> None:
    """Hands one collective to MXNet's engine, which runs it after what writes the inputs and before what
    reads the outputs."""
    count = len(requests)
    array = (Request * count)(*requests)
    reads = (ctypes.c_void_p * count)(*[t.handle.value for t in inputs])
    writes = (ctypes.c_void_p * count)(*[t.handle.value for t in outputs])
    refusal = _library().hvd_mxnet_push(array, count, reads, writes, int(priority), b"horovod")
    if refusal:
        raise MXNetError(refusal.decode("utf-8", "replace"))


def run(requests: Sequence[Request], inputs: Sequence[Any]) -> Tuple[List[Any], List[List[int]]]:
    """Runs one collective now; returns new arrays, and for alltoall the rows received from each member."""
    handle = engine.run(requests, keep=inputs)
    outputs, received = [], []
    try:
        for index, tensor in enumerate(inputs):
            itemsize = np.dtype(tensor.dtype).itemsize
            buffer = engine.take(handle, index, itemsize)
            host = np.frombuffer(memoryview(buffer.array()), dtype=tensor.dtype).reshape(buffer.shape)
            output = empty_like(tensor, buffer.shape)
            if host.size:
                _, copied = copies.timed(output.__setitem__, slice(None), host)
                copies.after(ctypes.string_at(requests[index].name).decode(), copied)
            outputs.append(output)
            received.append(buffer.splits)
    finally:
        engine.release(handle)
    return outputs, received


def address(tensor: Any) -> int:
    """Where the array's elements are, once whatever writes them is done."""
    tensor.wait_to_read()
    where = ctypes.c_void_p()
    mx.base.check_call(mx.base._LIB.MXNDArrayGetData(tensor.handle, ctypes.byref(where)))
    return where.value or 0


@functools.cache
def _library() -> ctypes.CDLL:
    library = _native.lib()
    library.hvd_mxnet_load.argtypes = (ctypes.c_char_p,)
    library.hvd_mxnet_push.restype = ctypes.c_char_p
    library.hvd_mxnet_push.argtypes = (
        ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p,
    )  # fmt: skip
    path = mx.libinfo.find_lib_path()[0]
    if library.hvd_mxnet_load(path.encode()) != 0:
        raise ImportError(
            f"{path} lacks entry points that horovod.mxnet needs; it is tested with MXNet 1.9.1."
        )
    return library
