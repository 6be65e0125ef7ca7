# SPDX-License-Identifier: Apache-2.0
"""Between NumPy and raw memory: dtypes, addresses, dense copies, results without a copy."""

from __future__ import annotations

import ctypes
from typing import Any, Dict

import numpy as np

from horovod.common import constants as c
from horovod.common.engine import OwnedBuffer, allocate

Array = Any  # np.ndarray; its generic parameters differ between NumPy versions

_from_buffer = ctypes.c_char.from_buffer
_addressof = ctypes.addressof
_empty_like = np.empty_like

# np.dtype -> number. bfloat16 and its like are added when first seen: NumPy does not know them itself.
_numbers: Dict[Any, int] = {
    np.dtype(name): number for name, number in c.DTYPE_OF_NAME.items() if name != "bfloat16"
}


def dtype_number(dtype: Any) -> int:
    """The engine's number of an element type."""
    number = _numbers.get(dtype)
    if number is not None:
        return number
    number = c.DTYPE_OF_NAME.get(dtype.name)  # e.g. ml_dtypes.bfloat16, whose name says what it is
    if number is None or not dtype.isnative:
        known = ", ".join(c.DTYPE_NAME)
        raise ValueError(f"NumPy dtype {dtype} is not supported; convert it to one of: {known}")
    _numbers[dtype] = number
    return number


def as_array(value: Any) -> Array:
    """An array over the value's memory if it has any (arrays, buffers), else a new one (lists, numbers)."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, bytes):
        return np.frombuffer(value, np.uint8)
    return np.asarray(value)


def dense(array: Array) -> Array:
    """The array itself if it is C-contiguous, else a copy that is."""
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def address(array: Array) -> int:
    """Where a dense array's memory is."""
    try:
        return _addressof(_from_buffer(array))  # four times as fast as array.ctypes.data
    except (
        TypeError,
        ValueError,
        BufferError,
    ):  # read-only, empty, or an element type without a buffer format
        return int(array.ctypes.data)


def like(array: Array) -> Array:
    """A new array of the same type and shape for a result, its values undefined."""
    if array.nbytes < c.LARGE_OUTPUT or not array.flags.c_contiguous:
        return _empty_like(array)
    return from_owned(allocate(array.nbytes, array.shape), array.dtype)


def from_owned(buffer: OwnedBuffer, dtype: Any) -> Array:
    """The engine's output as an array that frees it at the end of its life."""
    if buffer.nbytes == 0:
        return np.empty(buffer.shape, dtype)
    return np.asarray(buffer).view(dtype).reshape(buffer.shape)
