# SPDX-License-Identifier: Apache-2.0
"""Waiting for what another process will do, when nobody tells."""

from __future__ import annotations

import time


def until(condition, what, timeout=60):
    """Returns once a condition holds; fails with what was awaited."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s until {what}"
        time.sleep(0.05)
