# SPDX-License-Identifier: Apache-2.0
"""What watching a job costs it: 10,000 small collectives a second, with an observer and without.

Both happen in the same processes, in turns, because a percent is less than what two processes of the same
program differ by. Between collectives a rank does a fixed amount of work, found once so that one call and
its work take 100 us without an observer. A new observer is a line in OBSERVERS and a case in the adapter's
`observe`.
"""

from __future__ import annotations

from benchmarks.bench import Bench, Job, Rows
from benchmarks.rows import OURS, Row
from benchmarks.team import ContenderFailed, Team

RANKS = 2
CONTENDER = "horovod observed"
PERIOD_US = 100.0
# Collectives in a turn. Short turns next to each other tell a percent from noise; but a rank reports once a
# second, and a turn must have its share of that.
OBSERVERS = {"timeline": 200, "metrics": 200, "recorder": 200, "reports": 20_000}
SHORT_TIMES = 8  # as many turns as usual


def run(bench: Bench) -> Rows:
    """Wall time, and the processor time of all threads of a rank."""
    teams, absent = bench.teams.get((CONTENDER,), RANKS)
    names = [f"10,000 collectives a second, {observer}" for observer in OBSERVERS]
    try:
        if absent:
            raise ContenderFailed(absent[CONTENDER])
        loops = work_between(teams[CONTENDER])
    except ContenderFailed as error:
        for name in names:
            yield Row(name, not_run=str(error))
        return
    for (observer, inner), name in zip(OBSERVERS.items(), names):
        for clock, suffix in (("wall", ""), ("processor", ", processor time")):
            arguments = {"loops": loops, "reps": 1, "inner": inner, "clock": clock}
            jobs = {
                OURS: Job(CONTENDER, "observed", {**arguments, "what": observer}),
                "off": Job(CONTENDER, "observed", {**arguments, "what": "off"}),
            }
            row = bench.compare(name + suffix, RANKS, jobs, times=SHORT_TIMES if inner == 200 else 1)
            row.facts["loops"] = loops
            if clock == "wall" and "off" in row.times:
                row.facts["collectives_per_second"] = 1e6 / row.times["off"].median
            yield row


def work_between(team: Team) -> int:
    """How many turns of an empty loop fill what a small allreduce leaves of the period."""
    arguments = {"what": "off", "reps": 3, "inner": 300, "clock": "wall"}

    def period(loops: int) -> float:
        return min(team.command("observed", loops=loops, **arguments).repetitions) * 1e6

    bare, probe = period(0), period(2000)
    each = max((probe - bare) / 2000, 1e-4)
    return max(0, round((PERIOD_US - bare) / each))
