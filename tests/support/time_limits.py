# SPDX-License-Identifier: Apache-2.0
"""Limits of time that may stand inside each other."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import Any, Iterator


@contextlib.contextmanager
def time_limit(seconds: float, what: str = "it") -> Iterator[None]:
    """Raises TimeoutError in the main thread after that time, or when a limit around this one ends before.

    In another thread there is no limit: whoever waits for that thread needs one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(signum: int, frame: Any) -> None:
        raise TimeoutError(f"{what} did not end within {seconds:.0f} s")

    start = time.monotonic()
    around = signal.getitimer(signal.ITIMER_REAL)[0]  # 0: there is no limit around this one
    if around and around <= seconds:
        yield  # that one comes first, with what it has to say
        return
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if around:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, around - (time.monotonic() - start)))
