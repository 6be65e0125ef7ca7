# SPDX-License-Identifier: Apache-2.0
"""Into the engine and back: submit requests over raw memory, wait, take the results.

    handle = submit([request(ALLREDUCE, "allreduce.x", FLOAT32, (3,), address, address)])
    wait(handle)
    release(handle)

The engine reads and writes that memory until the submission is complete. Who submits keeps it alive until
then; who gives up before leaves it with `abandon`.

Memory of a CUDA device is read and written by the device itself, in order with the caller's stream: use
`wait_stream` instead of `wait`, which returns as soon as the work is enqueued.
"""

from __future__ import annotations

import ctypes
from typing import Any, Sequence

from horovod.common import _calls, _native
from horovod.common._calls import WAIT_SLICE_S
from horovod.common._native import Request
from horovod.common.abandoned import abandon, abandoned, forget_all, sweep
from horovod.common.constants import GROUP, OK, TIMEOUT, WILL_WAIT
from horovod.common.exceptions import raise_for
from horovod.common.outputs import OwnedBuffer, allocate, output, take
from horovod.common.requests import Standing, request

__all__ = [
    "OwnedBuffer", "Standing", "abandon", "abandoned", "allocate", "copy_output", "forget_all", "output",
    "poll", "raise_for", "release", "request", "run", "run_released", "submit", "sweep", "take", "wait",
    "wait_stream",
]  # fmt: skip

_byref = ctypes.byref


def _packed(requests: Sequence[Request]) -> Any:
    """The requests as the C array hvd_submit wants."""
    if len(requests) == 1:
        return _byref(requests[0])
    return (Request * len(requests))(*requests)


def submit(requests: Sequence[Request], *, will_wait: bool = False, group: bool = False) -> int:
    """Submits one request, or several as an atomic group, and returns a handle.

    Args:
        will_wait: the caller waits at once, so the background thread need not be woken.
        group: treat a single request as a group too.

    Raises:
        ValueError: an argument is wrong.
        HorovodInternalError: not initialised, shut down, or a peer died.
    """
    flags = (WILL_WAIT if will_wait else 0) | (GROUP if group else 0)
    if abandoned:
        sweep()
    handle: int = _native.lib().hvd_submit(_packed(requests), len(requests), flags, None, None, None)
    if handle < 0:
        raise_for(handle, _native.last_error())
    return handle


def run(requests: Sequence[Request], keep: Any = ()) -> int:
    """Submits and waits in one call; returns the completed handle, to be released by the caller.

    Device memory is waited for by the first request's stream, not by the caller.

    Args:
        keep: what the requests' addresses point into; it stays alive also if the wait is interrupted.
    """
    submitted = ctypes.c_int64()
    try:
        status = _native.lib().hvd_run(_packed(requests), len(requests), WAIT_SLICE_S, _byref(submitted))
        if status == TIMEOUT:
            _wait_on(submitted.value, requests[0])
        elif status != OK:
            raise_for(status, _native.last_error())
    except BaseException:  # also what a signal's handler raises between two lines
        if submitted.value:
            abandon(submitted.value, requests, keep)
        raise
    return submitted.value


def run_released(request: Request, keep: Any = ()) -> None:
    """Runs one request whose result goes into the caller's memory: the shortest blocking path."""
    release(run((request,), keep))


def _wait_on(handle: int, first: Request) -> None:
    if first.device >= 0:
        wait_stream(handle, first.stream or 0)
    else:
        wait(handle)


def poll(handle: int) -> bool:
    """Whether the submission is complete, successfully or not. Raises ValueError for an unknown handle."""
    done: int = _calls.poll(handle)
    if done < 0:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    return bool(done)


def wait(handle: int) -> None:
    """Waits for completion and raises if the operation failed. The handle stays valid until `release`."""
    _calls.wait(handle)


def wait_stream(handle: int, stream: int) -> None:
    """Device memory: puts the submission before whatever the stream is given from now on.

    Waits until its work is enqueued, not for the device; raises as `wait` does.
    """
    hvd_wait_stream = _native.lib().hvd_wait_stream
    status = hvd_wait_stream(handle, stream, WAIT_SLICE_S)
    while status == TIMEOUT:
        status = hvd_wait_stream(handle, stream, WAIT_SLICE_S)
    if status != OK:
        raise_for(status, _native.last_error())


def copy_output(handle: int, index: int, address: int, stream: int) -> None:
    """Copies an output that the engine made in device memory, in the order of a stream that waits for it."""
    status = _native.lib().hvd_copy_output(handle, index, address, stream)
    if status != OK:
        raise_for(status, _native.last_error())


def release(handle: int) -> None:
    """Forgets the handle of a complete submission, and what the engine owns for it."""
    _calls.release(handle)
