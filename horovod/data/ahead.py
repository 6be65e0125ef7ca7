# SPDX-License-Identifier: Apache-2.0
"""Items of an iterator, fetched by a thread before they are asked for."""

from __future__ import annotations

import queue
import threading
from typing import Any, Iterator

_END = object()


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error


def ahead(items: Iterator[Any], count: int) -> Iterator[Any]:
    """The items, of which a thread has up to `count` ready; 0: without a thread.

    An exception of the iterator is raised where its item would have come. When the consumer stops early
    (closes or drops the result), so does the thread.
    """
    if count < 1:
        yield from items
        return
    ready: queue.Queue[Any] = queue.Queue(count)
    stopped = threading.Event()

    def fetch() -> None:
        end: Any = _END
        try:
            for item in items:
                ready.put(item)
                if stopped.is_set():
                    break
        except BaseException as error:
            end = _Failure(error)
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()
        if not stopped.is_set():
            ready.put(end)

    thread = threading.Thread(target=fetch, name="horovod-data-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item = ready.get()
            if item is _END:
                return
            if isinstance(item, _Failure):
                raise item.error
            yield item
    finally:
        stopped.set()
        while thread.is_alive():  # it may wait for room
            try:
                ready.get(timeout=0.05)
            except queue.Empty:
                pass
        thread.join()
