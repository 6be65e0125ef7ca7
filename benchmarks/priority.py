# SPDX-License-Identifier: Apache-2.0
"""Real-time priority for ranks on machines that are not idle (needs root): --realtime."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

VARIABLE = "HVD_BENCH_REALTIME"


def asked_for(ranks: int) -> bool:
    """Not with fewer cores than ranks: who waits by polling would then keep the others from running."""
    return bool(os.environ.get(VARIABLE)) and ranks <= (os.cpu_count() or 1)


def prefer(pid: int, children: bool = True) -> None:
    """A process, its threads and its children go ahead of everything else."""
    _schedule(pid, os.SCHED_RR, 1, children)


@contextmanager
def preferred(ranks: int) -> Iterator[None]:
    """This process goes ahead of everything else while the with block lasts, if that was asked for."""
    if not asked_for(ranks):
        yield
        return
    prefer(os.getpid(), children=False)
    try:
        yield
    finally:
        _schedule(os.getpid(), os.SCHED_OTHER, 0, children=False)


def _schedule(pid: int, policy: int, priority: int, children: bool) -> None:
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            os.sched_setscheduler(int(task), policy, os.sched_param(priority))
            below = Path(f"/proc/{pid}/task/{task}/children").read_text().split() if children else []
        except (ProcessLookupError, FileNotFoundError):  # it has ended
            continue
        for child in below:
            _schedule(int(child), policy, priority, children)
