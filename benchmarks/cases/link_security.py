# SPDX-License-Identifier: Apache-2.0
"""What the modes of HOROVOD_LINK_SECURITY cost: the allreduce of two hosts in each of them.

The wire is unlimited, so that the processor is the limit: the worst case. "horovod" is the default, control,
in which data travels as it is.
"""

from __future__ import annotations

from benchmarks.bench import KIB, MIB, Bench, Rows, repetitions
from benchmarks.rows import OURS, Row
from benchmarks.starting_on_hosts import teams_on
from benchmarks.turns import Command, Work, take_turns
from benchmarks.units import size_text
from benchmarks.wires import Hosts, why_not

MODES = (OURS, "horovod integrity", "horovod encrypt")
SIZES = (4, 64 * KIB, MIB, 64 * MIB)


def run(bench: Bench) -> Rows:
    """One rank a host."""
    reason = why_not()
    if reason is not None:
        for size in SIZES:
            yield Row(_name(size), not_run=reason)
        return
    with Hosts(2) as hosts, teams_on(hosts, MODES, 1) as (teams, absent):
        for size in SIZES:
            works: dict[str, Work] = {
                mode: Command(team, "allreduce", bytes=size, **repetitions(size, mode))
                for mode, team in teams.items()
            }
            yield take_turns(_name(size), works, bench.patience, absent)


def _name(size: int) -> str:
    return f"sealed links, {size_text(size)}"
