# SPDX-License-Identifier: Apache-2.0
"""A time limit for a sequence of steps, under its old path."""

from __future__ import annotations

import time

from horovod.common.exceptions import TimeoutException

__all__ = ["Timeout", "TimeoutException"]


class Timeout:
    """Started when made. The message may contain {timeout} and {activity}."""

    def __init__(self, timeout: float, message: str) -> None:
        self._timeout = timeout
        self._deadline = time.time() + timeout
        self._message = message

    def remaining(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self._deadline - time.time())

    def timed_out(self) -> bool:
        """Whether the time is up."""
        return time.time() > self._deadline

    def check_time_out_for(self, activity: str) -> None:
        """Raises TimeoutException if the time is up."""
        if self.timed_out():
            raise TimeoutException(
                f"{self._message} Timeout after {self._timeout} seconds.".format(
                    activity=activity, timeout=self._timeout
                )
            )
