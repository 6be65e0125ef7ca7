# SPDX-License-Identifier: Apache-2.0
"""How a rank spent its time: computing, waiting for others, communicating. Pure.

While nothing of a rank is outstanding, its script computes. While operations are outstanding, and the script
goes on to submit others, it computes as well: what is moved meanwhile costs nothing ("hidden"). Once it has
submitted the last one of such a burst, it can only wait for the results.

How much of that is the fault of others? The burst is replayed as if every tensor had been ready everywhere
when this rank submitted it. What would still be left is communication, the rest is waiting for whoever came
last. (A late rank also costs where nobody stands idle: what moves later is hidden less.)
"""

from __future__ import annotations

import dataclasses
from typing import AbstractSet, Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple

from horovod.runner.report.batches import grouped
from horovod.runner.report.intervals import Interval, minus, total, union
from horovod.runner.report.traces import Operation

Pair = Tuple[str, str]  # names of tensors that were submitted one after the other


class Wait(NamedTuple):
    """How much later a burst of a rank ended because of another rank."""

    time: float  # when it ended
    length: float
    culprit: int  # the rank that came last, or -1
    name: str  # of the tensor it came last with
    first: bool  # the first of the burst: the culprit was late when it began, not slower later


class Exposed(NamedTuple):
    """Communication of a burst that nothing hid."""

    time: float  # when the burst ended
    length: float


@dataclasses.dataclass
class Spending:
    """One rank's time, in microseconds. compute + wait + communication is the whole window."""

    rank: int
    window: float
    wait: float = 0.0
    communication: float = 0.0  # nothing else was done meanwhile
    hidden: float = 0.0  # communication while the script computed; a part of compute
    waits: List[Wait] = dataclasses.field(default_factory=list)
    exposed: List[Exposed] = dataclasses.field(default_factory=list)

    @property
    def compute(self) -> float:
        """What the script did by itself."""
        return max(0.0, self.window - self.wait - self.communication)

    @property
    def overlap(self) -> float:
        """The share of all communication that was hidden, 0 to 1."""
        whole = self.hidden + self.communication
        return self.hidden / whole if whole else 0.0

    def caused(self) -> Dict[int, float]:
        """Microseconds of waiting by the rank that caused it."""
        times: Dict[int, float] = {}
        for one in self.waits:
            times[one.culprit] = times.get(one.culprit, 0.0) + one.length
        return times


def spend(
    rank: int, operations: Sequence[Operation], window: Interval, free: AbstractSet[Pair] = frozenset()
) -> Spending:
    """How a rank spent the time of a window, which holds all of its operations; `free` as for bursts()."""
    spending = Spending(rank, window[1] - window[0])
    for burst in bursts(operations, free):
        first, last = burst[0].submitted, burst[-1].submitted
        end = max(op.ended for op in burst)
        waits = _waits(rank, burst, last, end)
        waited = sum(one.length for one in waits)
        running = union((op.started, op.ended) for op in burst)
        spending.waits += waits
        spending.exposed.append(Exposed(end, end - last - waited))
        spending.wait += waited
        spending.communication += end - last - waited
        spending.hidden += total(running) - total(minus(running, [(first, last)]))
    return spending


def free_pairs(operations: Sequence[Operation]) -> Set[Pair]:
    """Tensors of which the second was once submitted before the first was done: nothing blocks in between."""
    ordered = sorted(operations, key=lambda op: op.submitted)
    return {(a.name, b.name) for a, b in zip(ordered, ordered[1:]) if b.submitted < a.ended}


def bursts(
    operations: Sequence[Operation], free: AbstractSet[Pair] = frozenset()
) -> Iterator[List[Operation]]:
    """What a script submits before it waits for results, in the order of submission.

    Operations that were outstanding together are of one burst. So are those that follow each other in a pair
    of `free`: that a gradient was reduced before the next one came does not mean that somebody waited for it.
    """
    burst: List[Operation] = []
    end = 0.0
    for op in sorted(operations, key=lambda op: op.submitted):
        if burst and op.submitted > end and (burst[-1].name, op.name) not in free:
            yield burst
            burst = []
        end = max(end, op.ended) if burst else op.ended
        burst.append(op)
    if burst:
        yield burst


def _waits(rank: int, burst: List[Operation], last: float, end: float) -> List[Wait]:
    """Whom the rank waited for, by a replay of the burst in which the others are never later than it."""
    waits: List[Wait] = []
    done = replayed = 0.0  # when what came before was done, and would have been
    delay = 0.0  # the largest so far
    for number, batch in enumerate(grouped(burst)):
        ready = max(op.ready for op in batch)
        # Its own news on their way are no wait for others.
        own = max(op.ready if op.last_rank == rank else op.submitted for op in batch)
        could, did = max(own, replayed), max(ready, done)
        if did - could > delay:
            others = [op for op in batch if op.last_rank != rank]
            blamed = max(others or batch, key=lambda op: op.ready)
            waits.append(Wait(end, did - could - delay, blamed.last_rank, blamed.name, number == 0))
            delay = did - could
        started, ended = min(op.started for op in batch), max(op.ended for op in batch)
        took = max(0.0, started - did) + max(0.0, ended - max(started, done))
        done, replayed = max(done, ended), could + took
    waited = end - max(replayed, last)  # the rest of the delay was hidden
    return [one._replace(length=one.length * waited / delay) for one in waits] if waited > 0 else []
