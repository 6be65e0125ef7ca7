# SPDX-License-Identifier: Apache-2.0
"""Reads what the workers of this machine print."""

from __future__ import annotations

import os
import queue
import selectors
import threading
import time
from typing import Callable, Dict, Tuple

from horovod.runner.host_runner import OutputFunction

# A worker has ended but something it started still holds its output open: how long to keep reading.
_LINGER_SECONDS = 1.0
_CHUNK = 1 << 16


class Streams:
    """Reads what workers print, in a thread of its own, which stands still while `output` does.

    drained(worker) is called when everything of a worker's was delivered.
    """

    def __init__(self, output: OutputFunction, drained: Callable[[int], None]) -> None:
        self._output = output
        self._drained = drained
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._open: Dict[int, int] = {}  # worker -> streams still open
        self._linger: Dict[int, float] = {}  # worker that ended -> how long its streams may stay silent
        self._new: queue.SimpleQueue[Tuple[int, int, int]] = queue.SimpleQueue()
        self._wake_read, self._wake_write = os.pipe()
        self._closing = self._closed = False
        self._thread = threading.Thread(target=self._read, name="horovod-output", daemon=True)

    def start(self) -> None:
        """Starts reading."""
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._thread.start()

    def add(self, worker: int, pipes: Dict[int, int]) -> None:
        """Takes the reading ends of a worker's pipes."""
        with self._lock:
            self._open[worker] = len(pipes)
        for channel, pipe in pipes.items():
            self._new.put((worker, channel, pipe))
        self._wake()

    def ended(self, worker: int) -> bool:
        """The worker's process is gone. Whether something of its output is still to come."""
        with self._lock:
            if not self._open.get(worker):
                return False
            self._linger[worker] = time.monotonic() + _LINGER_SECONDS
        self._wake()
        return True

    def close(self, limit: float) -> None:
        """Waits for the output of workers that have ended."""
        if not self._thread.is_alive():
            return
        self._closing = True
        self._wake()
        self._thread.join(limit)

    def _wake(self) -> None:
        with self._lock:
            if not self._closed:
                os.write(self._wake_write, b"x")

    def _read(self) -> None:
        while not (self._closing and not any(self._open.values())):
            for key, _ in self._selector.select(0.2 if self._linger else None):
                if key.data is None:
                    os.read(self._wake_read, 4096)
                    self._take_new()
                else:
                    self._relay(key)
            if self._linger:
                self._drop_lingering()
        self._selector.close()
        with self._lock:
            self._closed = True
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _take_new(self) -> None:
        while not self._new.empty():
            worker, channel, pipe = self._new.get()
            self._selector.register(pipe, selectors.EVENT_READ, (worker, channel))

    def _relay(self, key: selectors.SelectorKey) -> None:
        worker, channel = key.data
        data = os.read(key.fd, _CHUNK)
        self._output(worker, channel, data)
        if not data:
            self._close_stream(key)

    def _drop_lingering(self) -> None:
        """Gives up streams that a dead worker's children hold open without printing anything."""
        now = time.monotonic()
        readable = {key.fd for key, _ in self._selector.select(0)}
        for key in list(self._selector.get_map().values()):
            if key.data is not None and key.fd not in readable and self._linger.get(key.data[0], now) < now:
                self._output(key.data[0], key.data[1], b"")
                self._close_stream(key)

    def _close_stream(self, key: selectors.SelectorKey) -> None:
        worker, _ = key.data
        self._selector.unregister(key.fileobj)
        os.close(key.fd)
        with self._lock:
            self._open[worker] -= 1
            last = self._open[worker] == 0
            if last:
                del self._open[worker]
                self._linger.pop(worker, None)
        if last:
            self._drained(worker)
