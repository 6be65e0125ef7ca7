# SPDX-License-Identifier: Apache-2.0
"""Contenders take turns at one piece of work, so that a machine that slows down slows all of them."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Protocol

from benchmarks.noise import Watch
from benchmarks.rows import OURS, Row, Turn, summary
from benchmarks.team import ContenderFailed, Team


class Work(Protocol):
    """What one contender does in its turn."""

    def warm(self) -> None:
        """Before the first turn: caches, first touches, cached descriptions."""

    def turn(self) -> Turn:
        """A few repetitions."""


class Command:
    """A command to the ranks of a team."""

    def __init__(self, team: Team, do: str, **arguments: Any) -> None:
        self.team, self._do, self._arguments = team, do, arguments

    def warm(self) -> None:
        self.team.command(self._do, **{**self._arguments, "reps": 1})

    def turn(self) -> Turn:
        return self.team.command(self._do, **self._arguments)


LEAST_ROUNDS = 2


class Patience(NamedTuple):
    """How often contenders take turns at a row: so many rounds, fewer if the time runs out."""

    rounds: int
    seconds: float = 600.0


def take_turns(
    name: str, works: Mapping[str, Work], patience: Patience, absent: Optional[Mapping[str, str]] = None
) -> Row:
    """One row. Who fails takes no further part and is named in it with the reason."""
    row = Row(name, absent=dict(absent or {}))
    turns: Dict[str, List[Turn]] = {contender: [] for contender in works}

    def go(contender: str, warm: bool) -> None:
        if contender in row.absent:
            return
        try:
            if warm:
                works[contender].warm()
            else:
                turns[contender].append(works[contender].turn())
        except ContenderFailed as error:
            row.absent[contender] = str(error)

    with Watch() as watch:
        for contender in works:
            go(contender, warm=True)
        start = time.monotonic()
        for number in range(patience.rounds if works else 0):
            if number >= LEAST_ROUNDS and time.monotonic() - start > patience.seconds:
                row.facts["rounds_left_out"] = patience.rounds - number
                break
            order = list(works)
            first = number % len(order)
            for contender in order[first:] + order[:first]:
                go(contender, warm=False)
    row.noise = watch.noise
    row.times = {who: summary(done) for who, done in turns.items() if who not in row.absent}
    if OURS in row.absent:
        row.not_run = row.absent[OURS]
    return row
