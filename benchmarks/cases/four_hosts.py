# SPDX-License-Identifier: Apache-2.0
"""Four hosts in a ring, each with a wire of 1 Gbit/s, beside what such a wire allows.

A ring of n hosts sends 2(n-1)/n of the bytes over each wire, so 64 MiB take at least 0.81 s on four.
"""

from __future__ import annotations

from benchmarks.bench import MIB, Bench, Rows
from benchmarks.rows import OURS, Row, Turn
from benchmarks.starting_on_hosts import teams_on
from benchmarks.turns import Command, Work, take_turns
from benchmarks.wires import Hosts, why_not

HOSTS = 4
SIZE = 64 * MIB
BYTES_PER_SECOND = 1e9 / 8
NAME = "four hosts in a ring, 1 Gbit/s, 64 MiB"


def ring_limit(size: int, hosts: int, rate: float) -> float:
    """Seconds in which a ring can reduce so many bytes at this rate."""
    return 2 * (hosts - 1) / hosts * size / rate


class Limit:
    """A contender that takes exactly the time of the wire."""

    def warm(self) -> None:
        """Arithmetic needs none."""

    def turn(self) -> Turn:
        """The same every time."""
        seconds = ring_limit(SIZE, HOSTS, BYTES_PER_SECOND)
        return Turn([seconds], [seconds])


def run(bench: Bench) -> Rows:
    """One rank a host."""
    reason = why_not()
    if reason is not None:
        yield Row(NAME, not_run=reason)
        return
    contenders = (OURS,) if bench.quick else (OURS, "gloo", "openmpi", "mpich")
    with Hosts(HOSTS, "1gbit") as hosts, teams_on(hosts, contenders, 1) as (teams, absent):
        works: dict[str, Work] = {
            name: Command(team, "allreduce", bytes=SIZE, reps=1, inner=1) for name, team in teams.items()
        }
        works["wire's limit"] = Limit()
        yield take_turns(NAME, works, bench.at_most(5), absent)
