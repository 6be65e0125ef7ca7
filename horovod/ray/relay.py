# SPDX-License-Identifier: Apache-2.0
"""Brings what ranks log (ray_logger.log) to callbacks in the user's process."""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterator

from horovod.ray.adapter import Callbacks

_END = "horovod.ray: no more"


@contextlib.contextmanager
def relay(callbacks: Callbacks) -> Iterator[Any]:
    """A queue for the ranks; what is put there reaches every callback, on a thread of its own.

    What was logged before the end of the block is delivered when it is left. None without callbacks.
    """
    if not callbacks:
        yield None
        return
    from ray.util.queue import Queue

    queue = Queue(actor_options={"num_cpus": 0})
    failures = []

    def deliver() -> None:
        while True:
            info = queue.get()
            if info == _END:
                return
            try:
                for callback in callbacks:
                    callback(info)
            except Exception as error:  # told in the end; the job goes on
                failures.append(error)

    thread = threading.Thread(target=deliver, name="horovod-ray-callbacks", daemon=True)
    thread.start()
    try:
        yield queue
    finally:
        queue.put(_END)
        thread.join()
        queue.shutdown()
    if failures:
        raise failures[0]
