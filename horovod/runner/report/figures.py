# SPDX-License-Identifier: Apache-2.0
"""What the drawings show, for the page and for the pictures alike. Pure."""

from __future__ import annotations

import math
from typing import List, Sequence, Tuple

from horovod.runner.report.analysis import Analysis
from horovod.runner.report.steps import StepRow

Row = Tuple[str, List[Tuple[str, float]]]
_RANKS = 32  # more rows or columns than this nobody reads
_COLUMNS = 150
_CULPRITS = 8


def rank_rows(analysis: Analysis) -> List[Row]:
    """What each rank did; of many ranks, those that waited least (who is waited for) and most."""
    rows = [
        (analysis.job.label(one.rank),
         [("compute", one.compute), ("wait", one.wait), ("communication", one.communication)])
        for one in analysis.spendings
    ]  # fmt: skip
    if len(rows) <= _RANKS:
        return rows
    rows.sort(key=lambda row: row[1][1][1])
    return rows[: _RANKS // 2] + rows[-_RANKS // 2 :]


def who(rank: int) -> str:
    """The head of a column."""
    return f"rank {rank}" if rank >= 0 else "unknown"


def most_involved(analysis: Analysis) -> Tuple[List[int], List[int]]:
    """The ranks that waited and those that were waited for, in order; of many, the most involved."""
    waiters = sorted(analysis.waits, key=lambda rank: -sum(analysis.waits[rank].values()))[:_RANKS]
    culprits = [rank for rank, time in analysis.caused().items() if time > 0][:_RANKS]
    return sorted(waiters), sorted(culprits, key=lambda rank: (rank < 0, rank))


def step_rows(steps: Sequence[StepRow]) -> List[Row]:
    """A column for each step, in milliseconds; of many steps, a column for some in a row, on average."""
    group = math.ceil(len(steps) / _COLUMNS)
    rows: List[Row] = []
    for at in range(0, len(steps), group):
        some = steps[at : at + group]
        wait = sum(step.wait for step in some) / len(some) / 1e3
        moving = sum(step.communication for step in some) / len(some) / 1e3
        length = sum(step.length for step in some) / len(some) / 1e3
        label = f"step {some[0].number}" + (f" to {some[-1].number}" if len(some) > 1 else "")
        rows.append(
            (
                label,
                [("compute", max(0.0, length - wait - moving)), ("wait", wait), ("communication", moving)],
            )
        )
    return rows


def culprit_rows(analysis: Analysis) -> List[Tuple[str, List[float]]]:
    """A row for each of the ranks most waited for: by (groups of) steps, how much, of the most there is."""
    steps = analysis.steps
    group = max(1, math.ceil(len(steps) / _COLUMNS))
    rows = []
    for rank in sorted({rank for step in steps for rank in step.culprits}):
        times = [step.culprits.get(rank, 0.0) for step in steps]
        rows.append((rank, [sum(times[at : at + group]) for at in range(0, len(times), group)]))
    rows = sorted(rows, key=lambda row: -sum(row[1]))[:_CULPRITS]
    most = max((max(times) for _, times in rows), default=0.0) or 1.0
    return [(who(rank), [time / most for time in times]) for rank, times in sorted(rows)]


def bandwidth_points(analysis: Analysis) -> List[Tuple[str, List[Tuple[float, float]]]]:
    """Bytes of a batch and bytes a second: of this job, and as --check measured."""
    job = [(one.bytes / one.number, one.bandwidth) for one in analysis.sizes if one.bandwidth > 0]
    if not job:
        return []
    lines = [("job", job)]
    if analysis.measured is not None:
        lines.append(("check", [(nbytes, nbytes / seconds) for nbytes, seconds in analysis.measured.points]))
    return lines


def decades(values: Sequence[float], base: int) -> List[float]:
    """The powers of a base from below the least to above the greatest value."""
    low = math.floor(math.log(min(values), base) + 1e-9)
    high = math.ceil(math.log(max(values), base) - 1e-9)
    return [float(base) ** power for power in range(low, max(high, low + 1) + 1)]
