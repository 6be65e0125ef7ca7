# SPDX-License-Identifier: Apache-2.0
"""The job cut into steps, and who was waited for in each. Pure."""

from __future__ import annotations

import bisect
from collections import Counter
from typing import Dict, List, NamedTuple, Sequence, Tuple

from horovod.runner.report.spending import Spending
from horovod.runner.report.traces import Step, Trace


class StepRow(NamedTuple):
    """One step, as an average over ranks, in microseconds."""

    number: int
    length: float
    wait: float
    communication: float
    culprits: Dict[int, float]  # microseconds of waiting by the rank that caused it, of all ranks together


def marks(traces: Sequence[Trace]) -> Tuple[Dict[int, List[Step]], str]:
    """The ends of steps by rank, and how they were found: marked, inferred by the engine, guessed, or not."""
    marked = {trace.rank: trace.steps for trace in traces if len(trace.steps) > 1}
    if marked:
        inferred = any(steps[0].inferred for steps in marked.values())
        return marked, "inferred: a step ends before its first tensor comes back" if inferred else "marked"
    anchor = _anchor(traces)
    if not anchor:
        return {}, ""
    guessed = {}
    for trace in traces:
        times = [op.ended for op in trace.operations if op.name == anchor]
        guessed[trace.rank] = [Step(number, time) for number, time in enumerate(times)]
    return guessed, f"guessed: a step ends with {anchor}"


def _anchor(traces: Sequence[Trace]) -> str:
    """The tensor at the end of a step: of those that come most often, the last to come first."""
    names = Counter(op.name for op in traces[0].operations)
    most = max(names.values(), default=0)
    if most < 3:
        return ""
    order = list(dict.fromkeys(op.name for op in traces[0].operations))
    return next(name for name in reversed(order) if names[name] >= most * 0.9)


def by_step(ends: Dict[int, List[Step]], spendings: Sequence[Spending]) -> List[StepRow]:
    """What happened between one mark and the next, on average over the ranks that have both."""
    rows: Dict[int, List[Tuple[float, float, float]]] = {}
    culprits: Dict[int, Dict[int, float]] = {}
    for spending in spendings:
        steps = ends.get(spending.rank, [])
        times = [step.time for step in steps]
        waits, moves = [0.0] * len(steps), [0.0] * len(steps)
        for one in spending.waits:
            at = bisect.bisect_left(times, one.time)  # the step that ends next
            if 0 < at < len(steps):
                waits[at] += one.length
                blamed = culprits.setdefault(steps[at].number, {})
                blamed[one.culprit] = blamed.get(one.culprit, 0.0) + one.length
        for time, length in spending.exposed:
            at = bisect.bisect_left(times, time)
            if 0 < at < len(steps):
                moves[at] += length
        for at in range(1, len(steps)):
            rows.setdefault(steps[at].number, []).append((times[at] - times[at - 1], waits[at], moves[at]))
    return [
        StepRow(number, *_means(parts), dict(culprits.get(number, {})))
        for number, parts in sorted(rows.items())
    ]


def _means(parts: Sequence[Tuple[float, float, float]]) -> Tuple[float, float, float]:
    a, b, c = (sum(column) / len(parts) for column in zip(*parts))
    return a, b, c
