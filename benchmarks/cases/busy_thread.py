# SPDX-License-Identifier: Apache-2.0
"""How long an asynchronous allreduce takes while the thread that started it computes in Python."""

from __future__ import annotations

import os

from benchmarks.bench import KIB, MIB, Bench, Rows, same
from benchmarks.priority import VARIABLE
from benchmarks.rows import OURS, Row
from benchmarks.units import size_text


def run(bench: Bench) -> Rows:
    """Beside Gloo, 2 ranks."""
    for size in (4,) if bench.quick else (4, 64 * KIB, MIB, 16 * MIB):
        name = f"allreduce {size_text(size)} under a busy thread, 2 ranks"
        if os.environ.get(VARIABLE):
            # A busy thread with real-time priority would keep its own background thread from running.
            yield Row(name, not_run="not with --realtime")
        else:
            yield bench.compare(name, 2, same((OURS, "gloo"), "busy", bytes=size, reps=10))
