# SPDX-License-Identifier: Apache-2.0
"""Requests over raw memory: build, submit, wait, take the results. All front ends go through here.

    handle = submit([request(ALLREDUCE, "allreduce.x", FLOAT32, (3,), address, address)], keep=(array,))
    wait(handle)
    release(handle)

A handle keeps what it was given alive until it is both released and complete, because the engine reads and
writes that memory until then.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from horovod.common import _native
from horovod.common._native import Output, Request
from horovod.common.constants import GROUP, INVALID, OK, PRECONDITION, TIMEOUT, WILL_WAIT, Sum
from horovod.common.exceptions import HorovodInternalError, RanksDisagree

__all__ = [
    "OwnedBuffer", "hold", "output", "poll", "raise_for", "release", "request", "run", "run_released",
    "submit", "take", "wait",
]  # fmt: skip

# A blocked wait returns this often to let Python handle signals (Ctrl-C).
WAIT_SLICE_S = 0.2
_CACHE_LIMIT = 8192

_PACK = struct.Struct("@IiPPPPPdd8iP").pack
_REQUEST_SIZE = ctypes.sizeof(Request)
_from_bytes = Request.from_buffer_copy
_byref = ctypes.byref

# Names and shapes repeat every step; their C copies are kept. Dropping all at the limit is simple, and
# requests that still use an entry hold their own reference to it.
_names: Dict[str, Tuple[Any, int]] = {}
_shapes: Dict[Tuple[int, ...], Tuple[Any, int]] = {}

_kept: Dict[int, Tuple[Any, Any]] = {}  # handle -> requests and what the caller asked to keep alive
_abandoned: Dict[int, Tuple[Any, Any]] = {}  # released before completion
_abandoned_lock = threading.Lock()


def raise_for(status: int, text: str) -> None:
    """Raises the exception of a failed status: ValueError for a wrong argument, else HorovodInternalError."""
    if status == OK:
        return
    if status == INVALID:
        raise ValueError(text)
    if status == PRECONDITION:
        raise RanksDisagree(text)
    raise HorovodInternalError(text)


def request(
    kind: int,
    name: str,
    dtype: int,
    shape: Tuple[int, ...],
    input_ptr: int,
    output_ptr: int = 0,
    *,
    op: int = Sum,
    root: int = -1,
    splits: Optional[Sequence[int]] = None,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: int = 0,
) -> Request:
    """One tensor of one collective, ready for `submit` or `run`.

    Args:
        kind: ALLREDUCE ... REDUCESCATTER of `horovod.common.constants`.
        name: matched across the ranks of the process set.
        input_ptr, output_ptr: dense memory; equal for in-place; output 0 lets the engine allocate.
        root: broadcast's source, a global rank.
        splits: alltoall: rows for each member.
    """
    c_name = _names.get(name) or _c_name(name)
    c_shape = _shapes.get(shape) or _c_shape(shape)
    if splits is None:
        c_splits, splits_address, n_splits = None, 0, 0
    else:
        n_splits = len(splits)
        c_splits = (ctypes.c_int64 * max(n_splits, 1))(*splits)
        splits_address = ctypes.addressof(c_splits)
    # fmt: off
    made = _from_bytes(_PACK(
        _REQUEST_SIZE, kind, c_name[1], input_ptr, output_ptr, c_shape[1], splits_address, prescale,
        postscale, len(shape), dtype, op, root, process_set, n_splits, -1, 0, 0,
    ))
    # fmt: on
    made.keep = (c_name[0], c_shape[0], c_splits)
    return made


def _c_name(name: str) -> Tuple[Any, int]:
    buffer = ctypes.create_string_buffer(name.encode("utf-8"))
    entry = (buffer, ctypes.addressof(buffer))
    if len(_names) >= _CACHE_LIMIT:
        _names.clear()
    _names[name] = entry
    return entry


def _c_shape(shape: Tuple[int, ...]) -> Tuple[Any, int]:
    array = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    entry = (array, ctypes.addressof(array))
    if len(_shapes) >= _CACHE_LIMIT:
        _shapes.clear()
    _shapes[tuple(int(d) for d in shape)] = entry
    return entry


def _packed(requests: Sequence[Request]) -> Any:
    """The requests as the C array hvd_submit wants."""
    if len(requests) == 1:
        return _byref(requests[0])
    return (Request * len(requests))(*requests)


def submit(
    requests: Sequence[Request],
    *,
    keep: Iterable[Any] = (),
    will_wait: bool = False,
    group: Optional[bool] = None,
) -> int:
    """Submits one request, or several as an atomic group, and returns a handle.

    Args:
        keep: objects to hold until the handle is released and complete, usually the tensors.
        will_wait: the caller waits at once, so the background thread need not be woken.
        group: treat a single request as a group too.

    Raises:
        ValueError: an argument is wrong.
        HorovodInternalError: not initialised, shut down, or a peer died.
    """
    flags = (WILL_WAIT if will_wait else 0) | (GROUP if group else 0)
    if _abandoned:
        _sweep()
    handle = _native.lib().hvd_submit(_packed(requests), len(requests), flags, None, None, None)
    if handle < 0:
        raise_for(handle, _native.last_error())
    _kept[handle] = (requests, keep)
    return int(handle)


def run(requests: Sequence[Request], keep: Iterable[Any] = ()) -> int:
    """Submits and waits in one call; returns the completed handle, to be released by the caller."""
    lib = _native.lib()
    status = ctypes.c_int32()
    handle = lib.hvd_run(_packed(requests), len(requests), WAIT_SLICE_S, _byref(status))
    if handle < 0:
        raise_for(handle, _native.last_error())
    if status.value != OK:
        if status.value != TIMEOUT:
            text = _native.last_error()
            lib.hvd_release(handle)
            raise_for(status.value, text)
        _kept[handle] = (requests, keep)
        try:
            wait(handle)
        except BaseException:
            release(handle)
            raise
    return int(handle)


def run_released(request: Request, keep: Any = ()) -> None:
    """Runs one request whose result goes into the caller's memory: the shortest blocking path."""
    lib = _native._library or _native.lib()
    status = ctypes.c_int32()
    handle = lib.hvd_run(_byref(request), 1, WAIT_SLICE_S, _byref(status))
    if status.value == OK and handle > 0:
        lib.hvd_release(handle)
        return
    if handle < 0:
        raise_for(handle, _native.last_error())
    if status.value != TIMEOUT:
        text = _native.last_error()
        lib.hvd_release(handle)
        raise_for(status.value, text)
    _kept[handle] = ((request,), keep)
    try:
        wait(handle)
    finally:
        release(handle)


def poll(handle: int) -> bool:
    """Whether the submission is complete, successfully or not. Raises ValueError for an unknown handle."""
    done = _native.lib().hvd_poll(handle)
    if done < 0:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    return bool(done)


def wait(handle: int) -> None:
    """Waits for completion and raises if the operation failed. The handle stays valid until `release`."""
    hvd_wait = _native.lib().hvd_wait
    while True:
        status = hvd_wait(handle, WAIT_SLICE_S)
        if status == OK:
            return
        if status != TIMEOUT:
            raise_for(status, _native.last_error())


def hold(handle: int, keep: Any) -> None:
    """Keeps objects alive for a handle that was submitted without `submit`, as `submit(keep=...)` does."""
    _kept[handle] = ((), keep)


def release(handle: int) -> None:
    """Forgets the handle. Before completion the memory it uses stays held until the engine is done."""
    lib = _native.lib()
    kept = _kept.pop(handle, None)
    if kept is not None and lib.hvd_poll(handle) == 0:
        with _abandoned_lock:
            _abandoned[handle] = kept
        return
    lib.hvd_release(handle)


def _sweep() -> None:
    lib = _native.lib()
    with _abandoned_lock:
        for handle in [h for h in _abandoned if lib.hvd_poll(h) != 0]:
            lib.hvd_release(handle)
            del _abandoned[handle]


def forget_all() -> None:
    """Called after the engine stopped: nothing is in flight any more."""
    with _abandoned_lock:
        _abandoned.clear()
    _kept.clear()


def output(handle: int, index: int = 0) -> Output:
    """Result `index` of a completed handle; its addresses are valid until `release`."""
    result = Output()
    status = _native.lib().hvd_result(handle, index, _byref(result))
    if status != OK:
        raise_for(status, _native.last_error())
    return result


class OwnedBuffer:
    """Memory the engine allocated for an output, now owned by Python and freed with this object.

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
