# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors through pinned host memory.

The engine works on host memory. A CUDA tensor is copied to pinned memory on its current stream; a small
thread waits for that copy and then submits, so that the thread which launches kernels never waits for the
device. The result goes back on the current stream of whoever asks for it, which orders it with the user's
kernels without a host synchronisation.
"""

from __future__ import annotations

import queue
import threading
from typing import Any, Callable, Optional, Tuple

import torch


def to_host(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
    """A pinned copy of a CUDA tensor, and the event after which it holds the data."""
    host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    with torch.cuda.device(tensor.device):
        host.copy_(tensor, non_blocking=True)
        make_event: Any = torch.cuda.Event
        event = make_event()
        event.record()
    return host, event


class Ticket:
    """The engine handle of a submission that a device is still preparing."""

    __slots__ = ("_error", "_handle", "_submitted")

    def __init__(self) -> None:
        self._submitted = threading.Event()
        self._handle = 0
        self._error: Optional[BaseException] = None

    def submitted(self) -> bool:
        """Whether `handle` would return at once."""
        return self._submitted.is_set()

    def handle(self) -> int:
        """The engine's handle; waits for the device, raises what the submission raised."""
        self._submitted.wait()
        if self._error is not None:
            raise self._error
        return self._handle

    def _fulfil(self, submit: Callable[[], int]) -> None:
        try:
            self._handle = submit()
        except BaseException as error:  # noqa: B036 - delivered to the thread that waits
            self._error = error
        self._submitted.set()


_queue: queue.SimpleQueue[Tuple[Tuple[Any, ...], Callable[[], int], Ticket]] = queue.SimpleQueue()
_thread: Optional[threading.Thread] = None
_starting = threading.Lock()


def submit_after(events: Tuple[Any, ...], submit: Callable[[], int]) -> Ticket:
    """Calls `submit` on a helper thread once all events have happened. First come, first served."""
    global _thread
    with _starting:
        if _thread is None or not _thread.is_alive():  # first use, or this is a forked child
            _thread = threading.Thread(target=_serve, name="horovod-cuda-staging", daemon=True)
            _thread.start()
    ticket = Ticket()
    _queue.put((events, submit, ticket))
    return ticket


def _serve() -> None:
    while True:
        events, submit, ticket = _queue.get()
        try:
            for event in events:
                event.synchronize()
        except RuntimeError as error:  # a device error: whoever waits must see it

            def fail(error: RuntimeError = error) -> int:
                raise error

            submit = fail
        ticket._fulfil(submit)
