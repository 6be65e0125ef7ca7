# SPDX-License-Identifier: Apache-2.0
"""Everything the report shows, computed from a job's traces. Pure."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Optional

from horovod.runner.measured import Measured
from horovod.runner.report.batches import Batch, SizeClass, batches, by_size
from horovod.runner.report.intervals import Interval, minus, total, union
from horovod.runner.report.reading import Job
from horovod.runner.report.spending import Spending, free_pairs, spend
from horovod.runner.report.steps import StepRow, by_step, marks
from horovod.runner.report.tensors import TensorRow, by_tensor


@dataclasses.dataclass
class Analysis:
    """Times are in microseconds."""

    job: Job
    window: float
    spendings: List[Spending]  # of the ranks whose files there are
    waits: Dict[int, Dict[int, float]]  # who waited for whom how long; -1: nobody knows for whom
    steps: List[StepRow]
    steps_found: str  # how, or "" if there are none
    first_step_done: float  # when the last rank had done its first step; 0 if there are no steps
    tensors: List[TensorRow]
    batches: List[Batch]  # of the first rank
    sizes: List[SizeClass]
    parts: Dict[str, float]  # phases of operations, on average over ranks
    measured: Optional[Measured] = None

    def share(self, what: str) -> float:
        """The share of compute, wait or communication in the time of all ranks, 0 to 1."""
        whole = sum(one.window for one in self.spendings)
        return float(sum(getattr(one, what) for one in self.spendings)) / whole if whole else 0.0

    @property
    def overlap(self) -> float:
        """The share of communication that was hidden behind compute, 0 to 1."""
        hidden = sum(one.hidden for one in self.spendings)
        whole = hidden + sum(one.communication for one in self.spendings)
        return hidden / whole if whole else 0.0

    def caused(self) -> Dict[int, float]:
        """For each rank, how long it kept another one waiting, on average over the others, most first."""
        sums: Dict[int, float] = {}
        for by_culprit in self.waits.values():
            for culprit, time in by_culprit.items():
                sums[culprit] = sums.get(culprit, 0.0) + time
        others = max(1, len(self.waits) - 1)
        return {rank: sums[rank] / others for rank in sorted(sums, key=lambda rank: -sums[rank])}

    @property
    def slowdown(self) -> Optional[float]:
        """How many times as long as --check measured allreduces took; None without anything to compare."""
        moved = [one for one in self.batches if one.kind == "ALLREDUCE" and one.bytes > 0]
        if self.measured is None or not moved:
            return None
        expected = sum(self.measured.seconds(one.bytes) for one in moved)
        return sum(one.microseconds for one in moved) / 1e6 / expected


def analyse(job: Job, measured: Optional[Measured] = None) -> Analysis:
    """Computes what the report shows.

    Raises:
        ValueError: if the job has no operations.
    """
    traces = [trace for trace in job.traces if trace.operations]
    if not traces:
        raise ValueError("the timeline has no collectives; did the job end before its first allreduce?")
    begin = min(trace.operations[0].submitted for trace in traces)
    end = max(op.ended for trace in traces for op in trace.operations)
    free = {pair for trace in traces for pair in free_pairs(trace.operations)}
    spendings = [spend(trace.rank, trace.operations, (begin, end), free) for trace in traces]
    ends, found = marks(traces)
    moved = batches(traces[0].operations)
    parts: Dict[str, float] = {}
    for trace in traces:
        for name, time in trace.parts.items():
            parts[name] = parts.get(name, 0.0) + time / len(traces)
    return Analysis(
        job=job,
        window=end - begin,
        spendings=spendings,
        waits={**_waits_of_others(job), **{one.rank: one.caused() for one in spendings}},
        steps=by_step(ends, spendings),
        steps_found=found,
        first_step_done=max((steps[0].time for steps in ends.values() if steps), default=0.0),
        tensors=by_tensor(traces[0], moved, spendings),
        batches=moved,
        sizes=by_size(moved),
        parts=parts,
        measured=measured,
    )


def _waits_of_others(job: Job) -> Dict[int, Dict[int, float]]:
    """Waits of ranks without a file, as the coordinator saw them; a moment is blamed once."""
    intervals: Dict[int, Dict[int, List[Interval]]] = {}
    for trace in job.traces:
        for rank, time, ready, last in trace.others:
            if rank != last:
                intervals.setdefault(rank, {}).setdefault(last, []).append((time, ready))
    waits: Dict[int, Dict[int, float]] = {}
    for rank, by_culprit in intervals.items():
        blamed: List[Interval] = []
        for culprit, times in sorted(by_culprit.items()):
            fresh = minus(union(times), blamed)
            blamed = union([*blamed, *fresh])
            waits.setdefault(rank, {})[culprit] = total(fresh)
    return waits
