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
from typing import Any, Callable, Optional, Sequence, Tuple

import torch

from horovod.common import engine
from horovod.common.basics import basics
from horovod.common.exceptions import HorovodInternalError
from horovod.common.handles import Handle


def to_host(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
    """A pinned copy of a CUDA tensor, and the event after which it holds the data."""
    host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    with torch.cuda.device(tensor.device):
        host.copy_(tensor, non_blocking=True)
        make_event: Any = torch.cuda.Event
        event = make_event()
        event.record()
    return host, event


class StagedHandle(Handle):
    """A call that is submitted by the staging thread, once a device has filled its memory."""

    __slots__ = ("_cancelled", "_error", "_events", "_generation", "_submit", "_submitted")

    def __init__(
        self, events: Sequence[Any], submit: Callable[[], int], collect: Callable[[int], Any], keep: Any
    ) -> None:
        super().__init__(0, collect, keep)
        self._events = tuple(events)
        self._submit = submit
        self._submitted = threading.Event()
        self._error: Optional[BaseException] = None
        self._cancelled = False
        self._generation = _generation
        _enqueue(self)

    def submission(self) -> int:
        self._submitted.wait()
        if self._error is not None:
            raise self._error
        return self._submission

    def done(self) -> bool:
        return self._submitted.is_set() and (self._error is not None or super().done())

    def cancel(self) -> None:
        """Gives the call up: it is not submitted, or if it was, keeps its memory until it is complete."""
        with _submitting:
            self._cancelled = True
        if self._submission:
            engine.abandon(self._submission, self._keep)

    def serve(self) -> None:
        """Waits for the device and submits; called by the staging thread."""
        try:
            for event in self._events:
                event.synchronize()
            with _submitting:
                if self._generation != _generation:
                    raise HorovodInternalError(
                        "Horovod was shut down before a device had finished what was to be sent."
                    )
                if not self._cancelled:
                    self._submission = self._submit()
        except BaseException as error:  # noqa: B036 - delivered to the thread that waits
            self._error = error
        self._submitted.set()


_queue: queue.SimpleQueue[StagedHandle] = queue.SimpleQueue()
_thread: Optional[threading.Thread] = None
_starting = threading.RLock()  # a signal handler may submit while its own thread is here
_submitting = threading.RLock()
_generation = 0  # which life of the engine this is: what was meant for another one must not reach it


def _enqueue(handle: StagedHandle) -> None:
    """First come, first served."""
    global _thread
    with _starting:
        if _thread is None or not _thread.is_alive():  # first use, or this is a forked child
            _thread = threading.Thread(target=_serve, name="horovod-cuda-staging", daemon=True)
            _thread.start()
    _queue.put(handle)


def _serve() -> None:
    while True:
        _queue.get().serve()


def _next_generation() -> None:
    global _generation
    with _submitting:
        _generation += 1


basics.at_shutdown(_next_generation)
