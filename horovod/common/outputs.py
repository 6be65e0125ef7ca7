# SPDX-License-Identifier: Apache-2.0
"""Results of completed submissions, and memory that the engine allocated for them."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Tuple

from horovod.common import _native
from horovod.common._native import Output
from horovod.common.constants import OK
from horovod.common.exceptions import raise_for


def output(handle: int, index: int = 0) -> Output:
    """Result `index` of a completed handle; its addresses are valid until `engine.release`."""
    result = Output()
    status = _native.lib().hvd_result(handle, index, ctypes.byref(result))
    if status != OK:
        raise_for(status, _native.last_error())
    return result


class OwnedBuffer:
    """Memory the engine allocated for an output, owned by Python and freed with this object.

    Attributes:
        ptr: address (0 when empty).
        nbytes: size in bytes.
        shape: dimensions of the output.
        splits: alltoall: rows received from each member.
    """

    __slots__ = ("__weakref__", "_free", "nbytes", "ptr", "shape", "splits")

    def __init__(self, ptr: int, nbytes: int, shape: Tuple[int, ...], splits: List[int]) -> None:
        self.ptr = ptr
        self.nbytes = nbytes
        self.shape = shape
        self.splits = splits
        self._free = _native.lib().hvd_free

    def __del__(self) -> None:
        if self.ptr:
            self._free(self.ptr)
            self.ptr = 0

    def array(self) -> ctypes.Array[ctypes.c_char]:
        """A ctypes array over the memory (supports the buffer protocol) that keeps this object alive."""
        made = (ctypes.c_char * self.nbytes).from_address(self.ptr) if self.ptr else (ctypes.c_char * 0)()
        made.owner = self  # type: ignore[attr-defined]
        return made

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        """Lets NumPy use the memory, as bytes, without importing NumPy here."""
        return {"version": 3, "shape": (self.nbytes,), "typestr": "|u1", "data": (self.ptr, False)}

    def __bytes__(self) -> bytes:
        return ctypes.string_at(self.ptr, self.nbytes) if self.ptr else b""


def allocate(nbytes: int, shape: Tuple[int, ...]) -> OwnedBuffer:
    """Memory for a result, from what the engine keeps of results that are gone: cheaper than fresh memory.

    Raises:
        MemoryError: there is none.
    """
    ptr = _native.lib().hvd_allocate(nbytes)
    if not ptr:
        raise MemoryError(f"no memory for a result of {nbytes} bytes")
    return OwnedBuffer(ptr, nbytes, shape, [])


def take(handle: int, index: int, itemsize: int) -> OwnedBuffer:
    """Moves result `index` of a completed handle out of the engine, without a copy."""
    result = output(handle, index)
    shape = result.shape_tuple()
    count = 1
    for dimension in shape:
        count *= dimension
    splits = result.splits_list()
    ptr = _native.lib().hvd_take(handle, index) or 0
    return OwnedBuffer(ptr, count * itemsize, shape, splits)
