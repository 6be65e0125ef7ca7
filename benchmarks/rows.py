# SPDX-License-Identifier: Apache-2.0
"""A row of the results: one piece of work, and the times of everybody who did it.

Contenders take turns. A turn is a few repetitions; a repetition is one call, or many short ones in a row
whose mean counts. Medians and the middle half are over all repetitions, p99 over all single calls, each with
its slowest rank. The medians of the turns are kept, because turns with the same number were neighbours in
time: a ratio of two contenders is the median of the ratios of such neighbours.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from benchmarks.noise import Noise

OURS = "horovod"


class Turn(NamedTuple):
    """What a contender did when it was its turn, in seconds."""

    repetitions: List[float]
    calls: List[float]  # single ones; the same as the repetitions where these are single calls


@dataclass(frozen=True)
class Times:
    """One contender, in microseconds."""

    median: float
    p25: float
    p75: float
    p99: float
    samples: int
    calls: int  # how many p99 was taken from
    turns: List[float]


def summary(turns: Sequence[Turn]) -> Times:
    """What is kept of a contender's turns."""
    values = sorted(s * 1e6 for turn in turns for s in turn.repetitions)
    calls = sorted(s * 1e6 for turn in turns for s in turn.calls)
    low, high = middle_half(values)
    return Times(
        median=statistics.median(values), p25=low, p75=high, p99=percentile(calls, 0.99),
        samples=len(values), calls=len(calls),
        turns=[statistics.median(turn.repetitions) * 1e6 for turn in turns if turn.repetitions],
    )  # fmt: skip


def middle_half(values: Sequence[float]) -> Tuple[float, float]:
    """The ends of the middle half."""
    ordered = sorted(values)
    return ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that this share of the sorted values does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass
class Row:
    """One piece of work. Its name is what runs are compared by, e.g. "allreduce 4 B, 2 ranks"."""

    name: str
    benchmark: str = ""
    times: Dict[str, Times] = field(default_factory=dict)
    absent: Dict[str, str] = field(default_factory=dict)  # who took no part, and why
    not_run: str = ""  # why nothing was measured
    facts: Dict[str, float] = field(default_factory=dict)  # other numbers, e.g. {"batches": 11}
    noise: Optional[Noise] = None
    at: Dict[str, int] = field(default_factory=dict)  # its place in tables and plots: bytes, ranks, hosts
    machine: str = ""  # where it was measured, if not where the rest was

    @property
    def ours(self) -> Optional[Times]:
        """This package's time."""
        return self.times.get(OURS)


class Ratio(NamedTuple):
    """How many times as long, with the middle half of what single turns say."""

    median: float
    low: float
    high: float


def ratio(ours: Times, theirs: Times, beyond: Optional[Times] = None) -> Ratio:
    """Our time, or what it takes beyond another's, over theirs, from neighbouring turns."""
    off = beyond.turns if beyond else [0.0] * len(ours.turns)
    pairs = [(a - c) / b for a, b, c in zip(ours.turns, theirs.turns, off) if b > 0]
    if not len(ours.turns) == len(theirs.turns) == len(off) or not pairs:
        less = beyond.median if beyond else 0.0
        return Ratio(*((value - less) / theirs.median for value in (ours.median, ours.p25, ours.p75)))
    return Ratio(statistics.median(pairs), *middle_half(pairs))


# --------------------------------------------------------------------------------------------- JSON --


def as_json(row: Row) -> Dict[str, Any]:
    """A row as plain data, without what is empty."""
    data: Dict[str, Any] = {"name": row.name, "benchmark": row.benchmark}
    data["times"] = {name: vars(times) for name, times in row.times.items()}
    for key in ("absent", "not_run", "facts", "at", "machine"):
        if getattr(row, key):
            data[key] = getattr(row, key)
    if row.noise is not None:
        data["noise"] = row.noise._asdict()
    return data


def from_json(data: Mapping[str, Any]) -> Row:
    """The row that `as_json` wrote."""
    noise = data.get("noise")
    return Row(
        name=data["name"],
        benchmark=data.get("benchmark", ""),
        times={name: Times(**times) for name, times in data.get("times", {}).items()},
        absent=dict(data.get("absent", {})),
        not_run=data.get("not_run", ""),
        facts=dict(data.get("facts", {})),
        at=dict(data.get("at", {})),
        noise=Noise(**noise) if noise else None,
        machine=data.get("machine", ""),
    )
