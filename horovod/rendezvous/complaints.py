# SPDX-License-Identifier: Apache-2.0
"""A log that strangers cannot fill."""

from __future__ import annotations

import logging
import time

log = logging.getLogger("horovod")


class Complaints:
    """A log of what strangers do: at most one line a second, however many they are."""

    SECONDS = 1.0

    def __init__(self) -> None:
        self._next = 0.0
        self._more = 0
        self._last = ""

    def say(self, text: str) -> None:
        """Logs the text, or counts it until the next line may be written."""
        if time.monotonic() < self._next:
            self._more += 1
            self._last = text
            return
        self._next = time.monotonic() + self.SECONDS
        log.warning("%s%s", text, f" (and {self._more} more like it)" if self._more else "")
        self._more = 0

    def close(self) -> None:
        """Mentions what was only counted so far."""
        if self._more:
            log.warning("%s (and %d more like it)", self._last, self._more - 1)
