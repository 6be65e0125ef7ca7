# SPDX-License-Identifier: Apache-2.0
"""Requests over raw memory, as the engine wants them: what one tensor of one collective is about.

request     one, built for one call
Standing    several that are submitted together again and again, of which only little changes
"""

from __future__ import annotations

import array
import ctypes
import struct
from typing import Any, Dict, Optional, Sequence, Tuple

from horovod.common import names
from horovod.common._native import Request
from horovod.common.constants import GROUP, WILL_WAIT, Sum

_PACK = struct.Struct("@IiPPPPPdd8iPPi4x").pack
_REQUEST_SIZE = ctypes.sizeof(Request)
_from_bytes = Request.from_buffer_copy
_CACHE_LIMIT = 8192

# Names and shapes repeat every step; their C copies are kept. Dropping all at the limit is simple, and
# requests that still use an entry hold their own reference to it.
_names: Dict[str, Tuple[Any, int]] = {}
_shapes: Dict[Tuple[int, ...], Tuple[Any, int]] = {}


def request(
    kind: int,
    name: str,
    dtype: int,
    shape: Tuple[int, ...],
    input_ptr: int,
    output_ptr: int = 0,
    op: int = Sum,
    root: int = -1,
    splits: Optional[Sequence[int]] = None,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: int = 0,
    device: int = -1,
    stream: int = 0,
    wire: int = 0,
) -> Request:
    """One tensor of one collective, ready for `engine.submit` or `engine.run`.

    Args:
        kind: ALLREDUCE ... REDUCESCATTER of `horovod.common.constants`.
        name: matched across the ranks of the process set.
        input_ptr, output_ptr: dense memory; equal for in-place; output 0 lets the engine allocate.
        root: broadcast's source, a global rank.
        splits: alltoall: rows for each member.
        device: -1 for host memory, else the number of a CUDA device of this process.
        stream: device memory: the CUDA stream the caller works on, 0 for the default one.
        wire: device memory: FLOAT16 or BFLOAT16 for an allreduce that travels so, 0 for as it is.

    Raises:
        ValueError: a number does not fit, or the name cannot be sent.
    """
    c_name = _names.get(name) or _c_name(name)
    c_shape = _shapes.get(shape) or _c_shape(shape)
    if splits is None:
        c_splits, splits_address, n_splits = None, 0, 0
    else:
        c_splits = _c_splits(splits, name)
        splits_address, n_splits = c_splits.buffer_info()
    try:
        # fmt: off
        made = _from_bytes(_PACK(
            _REQUEST_SIZE, kind, c_name[1], input_ptr, output_ptr, c_shape[1], splits_address, prescale,
            postscale, len(shape), dtype, op, root, process_set, n_splits, device, 0, 0, stream, wire,
        ))
        # fmt: on
    except (struct.error, OverflowError):
        # E.g. a root of 2**40.
        raise _does_not_fit(name, op, root, process_set, prescale, postscale) from None
    made.keep = (c_name[0], c_shape[0], c_splits)
    return made


def _c_name(name: str) -> Tuple[Any, int]:
    buffer = ctypes.create_string_buffer(names.encoded(name))
    entry = (buffer, ctypes.addressof(buffer))
    if len(_names) >= _CACHE_LIMIT:
        _names.clear()
    _names[name] = entry
    return entry


def _c_shape(shape: Tuple[int, ...]) -> Tuple[Any, int]:
    memory = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    entry = (memory, ctypes.addressof(memory))
    if len(_shapes) >= _CACHE_LIMIT:
        _shapes.clear()
    _shapes[tuple(int(d) for d in shape)] = entry
    return entry


def _c_splits(splits: Sequence[int], name: str) -> array.array[int]:
    try:
        return array.array("q", splits)
    except (OverflowError, TypeError):
        raise ValueError(f"splits={list(splits)} of {name}: these are not numbers of rows.") from None


def _does_not_fit(
    name: str, op: int, root: int, process_set: int, prescale: float, postscale: float
) -> ValueError:
    """The error of a request whose numbers cannot be packed: names the argument."""
    for what, value in (("op", op), ("root_rank", root), ("process_set", process_set)):
        try:
            struct.pack("i", value)
        except struct.error:
            if what == "root_rank" and isinstance(value, int):
                text = f"broadcast received invalid root rank {value} for provided process set"
                return ValueError(f"{text} (tensor {name})")
            return ValueError(f"{what}={value!r} of {name}: this is not a whole number of 32 bits.")
    return ValueError(
        f"prescale_factor={prescale!r}, postscale_factor={postscale!r} of {name}: these are not numbers that "
        "a double can hold."
    )


class Standing:
    """Requests that are submitted together, again and again; what changes is written into them.

    Attributes:
        requests: the C array.
        words: the first request as 64-bit words; `words[INPUT] = address` is the fastest way to change it.
        loud, quiet: the arguments of `_calls.start_standing`. After a quiet one the engine's thread sleeps
            on: whoever waits drives the engine.
    """

    __slots__ = ("_keep", "loud", "quiet", "requests", "words")

    INPUT = Request.input.offset // 8
    OUTPUT = Request.output.offset // 8
    STREAM = Request.stream.offset // 8

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = (Request * len(requests))(*requests)
        self._keep = [one.keep for one in requests]  # the copies have the addresses, this has the memory
        self.words = memoryview(self.requests).cast("B").cast("Q")
        flags = GROUP if len(requests) > 1 else 0
        address = ctypes.addressof(self.requests)
        self.loud = (address, len(requests), flags)
        self.quiet = (address, len(requests), flags | WILL_WAIT)

    def reshape(self, index: int, shape: Tuple[int, ...]) -> None:
        """Gives a request another shape."""
        memory, address = _shapes.get(shape) or _c_shape(shape)
        self._keep[index] = (self._keep[index][0], memory)
        self.requests[index].shape, self.requests[index].ndim = address, len(shape)
