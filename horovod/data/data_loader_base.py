# SPDX-License-Identifier: Apache-2.0
"""Base classes for loaders of your own: one that iterates, and one that does so in a thread.

    class Loader(AsyncDataLoaderMixin, MyLoader): ...

where MyLoader is a BaseDataLoader. For Parquet files there is horovod.data.ParquetReader.
"""

from __future__ import annotations

import queue
import threading
from typing import Any, Iterator, List, Optional

_END = None  # marks the end of an epoch in the queue


class BaseDataLoader:
    """A loader says how long it is and how to iterate; `_process_batch` may change what is yielded."""

    def __len__(self) -> int:
        """Batches in an epoch."""
        raise NotImplementedError

    def _iterate(self) -> Iterator[Any]:
        """Yields the batches of an epoch."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        for batch in self._iterate():
            yield self._process_batch(batch)

    def _process_batch(self, batch: Any) -> Any:
        return batch


class AsyncDataLoaderMixin:
    """Put before a BaseDataLoader: a thread fills a queue with its batches, one epoch after the other.

    Args:
        async_loader_queue_size: batches that may wait in the queue; 0 loads when asked for.
        debug_data_loader: print what the queue does.
        args: for the loader, as are the other keyword arguments.
    """

    def __init__(
        self, async_loader_queue_size: int = 64, debug_data_loader: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        self.async_loader_queue_size = async_loader_queue_size
        self.debug_data_loader = debug_data_loader
        super().__init__(*args, **kwargs)
        self._closing = threading.Event()
        self._queue: Optional[queue.Queue[Any]] = None
        self._thread: Optional[threading.Thread] = None
        if async_loader_queue_size > 0:
            self._queue = queue.Queue(async_loader_queue_size)

    def close_async_loader(self) -> None:
        """Stops the thread and drops what waits in the queue. Iterating again starts another thread."""
        thread, self._thread = self._thread, None
        self._closing.set()
        while thread is not None and thread.is_alive():  # it may wait for room
            self._drain()
            thread.join(0.05)
        self._drain()
        self._say("closed")

    def __iter__(self) -> Iterator[Any]:
        if self._queue is None:
            yield from super().__iter__()  # type: ignore[misc]
            return
        if self._thread is None or not self._thread.is_alive():
            self._closing.clear()
            self._thread = threading.Thread(target=self._fill, name="horovod-async-loader", daemon=True)
            self._thread.start()
        while True:
            item = self._queue.get()
            if isinstance(item, _Raised):
                self._thread.join()
                raise item.error
            if item is _END:
                return
            self._say(f"{self._queue.qsize()} batches wait")
            yield self._process_batch(item[0])  # type: ignore[attr-defined]

    def _fill(self) -> None:
        assert self._queue is not None
        self._say("thread started")
        try:
            while not self._closing.is_set():
                for batch in self._iterate():  # type: ignore[attr-defined]
                    self._queue.put([batch])  # in a list: a batch may be None
                    if self._closing.is_set():
                        return
                self._queue.put(_END)
        except BaseException as error:
            self._queue.put(_Raised(error))

    def _drain(self) -> List[Any]:
        drained: List[Any] = []
        try:
            while self._queue is not None:
                drained.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return drained

    def _say(self, text: str) -> None:
        if self.debug_data_loader:
            print(f"async loader: {text}", flush=True)


class _Raised:
    def __init__(self, error: BaseException) -> None:
        self.error = error
