# SPDX-License-Identifier: Apache-2.0
"""Rows and runs made up for the tests."""

from __future__ import annotations

from typing import Any

from benchmarks.rows import Row, Times
from benchmarks.store import Run

ABOUT = {
    "date": "2026-11-15T12:23:00+00:00",
    "quick": False,
    "machine": {"cpu": "Some CPU", "cores": 2, "memory_gib": 8, "kernel": "6.1.0-x", "python": "3.11.7"},
    "sources": {"commit": "0123456789abcdef0123456789abcdef01234567", "subject": "Faster", "dirty": False},
    "noise": {"load": 1.0, "steal": 0.0, "others": 0.0},
}


def times(median: float, spread: float = 0.1, p99: float = 0.0, turns: int = 3) -> Times:
    """A contender in microseconds, with a middle half of so much to both sides."""
    low, high = median * (1 - spread), median * (1 + spread)
    return Times(
        median=median, p25=low, p75=high, p99=p99 or 2 * median, samples=9, calls=90,
        turns=[low, median, high][:turns],
    )  # fmt: skip


def row(name: str, /, **medians: float) -> Row:
    """A row with these medians; a _ in a contender's name stands for a space."""
    return Row(name, times={who.replace("_", " "): times(median) for who, median in medians.items()})


def run(*rows: Row, **about: Any) -> Run:
    """A run of these rows."""
    return Run({**ABOUT, **about}, list(rows))
