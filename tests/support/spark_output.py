# SPDX-License-Identifier: Apache-2.0
"""What ranks in Spark tasks print, and whether their processes are gone."""

from __future__ import annotations

import io
import os
import threading
import time


class Heard(io.StringIO):
    """What ranks print, and an event for what is waited for."""

    def __init__(self, awaited="", times=1):
        super().__init__()
        self.awaited, self.times = awaited, times
        self.event = threading.Event()

    def write(self, text):
        written = super().write(text)
        if self.awaited and self.getvalue().count(self.awaited) >= self.times:
            self.event.set()
        return written

    def numbers(self, word):
        """The numbers after a word, e.g. of "pid 17"."""
        words = self.getvalue().split()
        return [int(after) for before, after in zip(words, words[1:]) if before.endswith(word)]


def gone(pids, seconds=60):
    """Whether all of these processes end in time."""
    deadline = time.monotonic() + seconds
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
