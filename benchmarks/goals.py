# SPDX-License-Identifier: Apache-2.0
"""What is to be reached, one line a row, and the verdict on what was measured.

A time is at most so many microseconds, at most so many times another contender's time, or, for steadiness,
has a p99 of at most so many times the median. Where a row does more than what is compared, only the time
beyond that of the same work without us counts. A row that nobody measured keeps its place with the reason.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Sequence

from benchmarks.rows import OURS, Ratio, Row, ratio
from benchmarks.units import size_text, time_text

KIB, MIB = 1 << 10, 1 << 20
LATENCY_SIZES = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 8 * MIB)  # to be as fast as MPI
MEMORY_SIZES = (16 * MIB, 128 * MIB)  # to be as fast as the memory

REACHED, NOT, UNKNOWN = "reached", "not", "-"


class Reach(NamedTuple):
    """Our time is at most `at_most` microseconds or, with `of`, so many times that contender's."""

    at_most: float
    of: str = ""
    words: str = ""  # how to say it, where "at most 1.11x X" hides what is meant
    steady: bool = False  # p99 over our own median instead
    beyond: str = ""  # of our time, only what it takes beyond this contender's

    def __str__(self) -> str:
        if self.words:
            return self.words
        if self.steady:
            return f"p99 at most {self.at_most:g}x the median"
        return f"at most {self.at_most:g}x {self.of}" if self.of else f"at most {time_text(self.at_most)}"


class Judgement(NamedTuple):
    """How a row stands against one thing it is to reach."""

    reach: Reach
    ratio: Ratio  # of what was measured to what is allowed: 1 or less is reached
    verdict: str
    reason: str = ""  # why there is no verdict

    @property
    def within_noise(self) -> bool:
        """Half of the turns may say the opposite."""
        return self.verdict != UNKNOWN and self.ratio.low <= 1.0 <= self.ratio.high


def _as_fast_as(*contenders: str) -> List[Reach]:
    return [Reach(1.0, name, f"at least {name}'s speed") for name in contenders]


def _goals() -> Dict[str, List[Reach]]:
    goals: Dict[str, List[Reach]] = {
        "allreduce 4 B, 1 rank": [Reach(1.5)],
        "allreduce 4 B, 2 ranks": [Reach(5)],
        "barrier, 2 ranks": [Reach(1.0, "allreduce 4 B", "at most the allreduce's time")],
        "allreduce 4 B, 4 ranks": [Reach(25)],
        "allreduce 4 B, 16 ranks": [Reach(15), Reach(3, steady=True)],
    }
    for ranks in (2, 4):
        for size in LATENCY_SIZES:
            goals[f"allreduce {size_text(size)}, {ranks} ranks"] = _as_fast_as("openmpi", "mpich")
    for ranks in (2, 4):
        for size in MEMORY_SIZES:
            goals[f"allreduce {size_text(size)}, {ranks} ranks"] = [Reach(1.8, "memcpy")]
    of_numpy = Reach(1 / 0.9, "numpy", "at least 0.9 of horovod.numpy")
    # The same for work that is alike: results that are made, and of a step only what is added to it.
    out_of_place = Reach(1 / 0.9, "numpy out of place", "at least 0.9 of horovod.numpy out of place")
    added = of_numpy._replace(words=f"beyond TensorFlow alone {of_numpy}", beyond="TensorFlow alone")
    goals.update(
        {
            "107 small tensors one by one": [Reach(800)],
            "107 small tensors grouped": [Reach(500)],
            "TensorFlow graph, 64 MiB": [of_numpy, out_of_place],
            "TensorFlow graph, 160 gradients": [of_numpy, added],
            "NumPy out of place, 64 MiB": [Reach(1 / 0.8, "in place", "at least 0.8 of in place")],
            "torch hook, 160 parameters": [Reach(2)],
            "torch hook, 20 x Linear(1024)": [Reach(4)],
            "training, 20 x Linear(1024)": [Reach(1 / 1.5, "ddp", "at least 1.5x DDP on Gloo")],
            "training, convolution net": [Reach(1 / 1.3, "ddp", "at least 1.3x DDP on Gloo")],
        }
    )
    for per_host in ("1 rank", "2 ranks"):
        of_wire = Reach(1 / 0.9, "iperf3", "at least 0.9 of iperf3 with as many streams")
        both_ways = Reach(1 / 0.9, "iperf3 both ways", "at least 0.9 of iperf3 both ways")
        goals[f"two hosts, 64 MiB, {per_host} a host"] = [of_wire, both_ways, *_as_fast_as("gloo", "openmpi")]
        goals[f"two hosts, 4 B, {per_host} a host"] = _as_fast_as("gloo", "openmpi")
    goals.update(
        {
            "four hosts in a ring, 1 Gbit/s, 64 MiB": [
                Reach(1 / 0.9, "wire's limit", "at least 0.9 of the wire's limit")
            ],
            "horovodrun -np 64, empty script": [Reach(1.5e6)],
            "10,000 collectives a second, timeline": [Reach(1.02, "off")],
            "10,000 collectives a second, metrics": [Reach(1.02, "off")],
            "10,000 collectives a second, recorder": [Reach(1.02, "off")],
            "10,000 collectives a second, reports": [Reach(1.02, "off")],
        }
    )
    return goals


GOALS = _goals()


def judge(row: Row) -> List[Judgement]:
    """Everything this row is to reach; empty for a row without a goal."""
    return [_judge(row, reach) for reach in GOALS.get(row.name, [])]


def _judge(row: Row, reach: Reach) -> Judgement:
    ours, nothing = row.ours, Ratio(0.0, 0.0, 0.0)
    if ours is None:
        why = row.not_run or row.absent.get(OURS, "") or "not measured"
        return Judgement(reach, nothing, UNKNOWN, why)
    if reach.steady:
        found = Ratio(*[ours.p99 / ours.median] * 3)
    elif not reach.of:
        found = Ratio(ours.median, ours.p25, ours.p75)
    else:
        for needed in filter(None, (reach.of, reach.beyond)):
            if needed not in row.times:
                why = row.absent.get(needed, "not measured")
                return Judgement(reach, nothing, UNKNOWN, f"without {needed}: {why}")
        found = ratio(ours, row.times[reach.of], row.times[reach.beyond] if reach.beyond else None)
    share = Ratio(*(value / reach.at_most for value in found))
    return Judgement(reach, share, REACHED if share.median <= 1.0 else NOT)


def unanswered(rows: Sequence[Row], why: str) -> List[Row]:
    """A row with a reason for each goal that no row answers."""
    answered = {row.name for row in rows}
    return [Row(name, not_run=why) for name in GOALS if name not in answered]
