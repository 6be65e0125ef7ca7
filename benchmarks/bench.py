# SPDX-License-Identifier: Apache-2.0
"""What every benchmark is given: how long it may take, and teams to measure with."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping, NamedTuple, Sequence, Union

from benchmarks.contenders import CONTENDERS
from benchmarks.rows import Row
from benchmarks.starting import Teams
from benchmarks.turns import Command, Patience, Work, take_turns

KIB, MIB = 1 << 10, 1 << 20
Rows = Iterator[Row]
QUICK_ROW_S, FULL_ROW_S = 4.0, 60.0  # for one row, once every contender had two turns


class Job(NamedTuple):
    """A command of worker.py for the team of a contender."""

    contender: str
    do: str
    arguments: Mapping[str, Any]


Shown = Union[Sequence[str], Mapping[str, str]]  # contenders by name, or {shown: name}


def same(contenders: Shown, do: str, **arguments: Any) -> Dict[str, Job]:
    """The same command for several contenders."""
    if not isinstance(contenders, Mapping):
        contenders = {name: name for name in contenders}
    return {shown: Job(name, do, arguments) for shown, name in contenders.items()}


def calls(contenders: Shown, do: str, size: int, **arguments: Any) -> Dict[str, Job]:
    """The same blocking call of so many bytes, each contender in its own repetitions."""
    jobs = same(contenders, do, **arguments)
    return {
        shown: job._replace(arguments={**arguments, **repetitions(size, job.contender)})
        for shown, job in jobs.items()
    }


def allreduces(contenders: Shown, size: int) -> Dict[str, Job]:
    """A blocking allreduce of so many bytes."""
    return calls(contenders, "allreduce", size, bytes=size)


class Bench:
    """One run of the benchmarks, quick or full."""

    def __init__(self, teams: Teams, quick: bool, rounds: int = 0) -> None:
        self.teams, self.quick = teams, quick
        self.patience = Patience(rounds or (6 if quick else 15), QUICK_ROW_S if quick else FULL_ROW_S)

    def at_most(self, rounds: int) -> Patience:
        """For work of which one turn takes long."""
        return self.patience._replace(rounds=min(rounds, self.patience.rounds))

    def compare(self, row: str, ranks: int, jobs: Mapping[str, Job], times: int = 1) -> Row:
        """One row: teams of so many ranks take turns at their jobs. Our own is the one shown as "horovod".

        times: so many times as many rounds as usual.
        """
        teams, reasons = self.teams.get(sorted({job.contender for job in jobs.values()}), ranks)
        works: Dict[str, Work] = {}
        absent: Dict[str, str] = {}
        for shown, job in jobs.items():
            if job.contender in teams:
                works[shown] = Command(teams[job.contender], job.do, **job.arguments)
            else:
                absent[shown] = reasons[job.contender]
        return take_turns(row, works, self.patience._replace(rounds=times * self.patience.rounds), absent)


def repetitions(size: int, contender: str) -> Dict[str, int]:
    """How often a buffer of so many bytes goes round in one turn of a contender.

    A turn begins with waking up: 50 calls of a microsecond would measure cold caches and a slow clock.
    """
    if size <= 4 * KIB and not CONTENDERS[contender].slow:
        return {"reps": 3, "inner": 500}
    if size <= 64 * KIB:
        return {"reps": 3, "inner": 50}
    if size <= MIB:
        return {"reps": 3, "inner": 10}
    return {"reps": 2 if size <= 16 * MIB else 1, "inner": 1}
