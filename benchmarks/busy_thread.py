# SPDX-License-Identifier: Apache-2.0
"""How long an asynchronous allreduce takes while the thread that started it computes in Python."""

from __future__ import annotations

import os
from typing import Any, Dict

from benchmarks.harness import print_table, size_text, start_teams, take_turns


def run(quick: bool = False) -> Dict[str, Any]:
    """{bytes: {contender: {...}}}"""
    # A busy thread with real-time priority would keep its own background thread from running.
    realtime = os.environ.pop("HVD_BENCH_REALTIME", None)
    teams = start_teams(("horovod", "gloo"), 2)
    if realtime is not None:
        os.environ["HVD_BENCH_REALTIME"] = realtime
    rows: Dict[str, Any] = {}
    try:
        for size in [4] if quick else [4, 64 << 10, 1 << 20, 16 << 20]:
            rows[size_text(size)] = take_turns(teams, 2 if quick else 5, "busy", bytes=size, reps=10)
    finally:
        for team in teams.values():
            team.close()
    print_table("asynchronous allreduce under a busy main thread, 2 ranks", "bytes", rows)
    return rows
