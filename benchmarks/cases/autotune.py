# SPDX-License-Identifier: Apache-2.0
"""What autotune makes of a bad start: small gradients in one call, with a fusion threshold of one byte.

"horovod" is tuned from that start, "planted bad" stays there, "default" is what nobody has set anything for.
The search runs before the turns begin.
"""

from __future__ import annotations

from math import prod

from benchmarks.bench import Bench, Rows, same
from benchmarks.cases.many_tensors import RANKS, SMALL, resnet50_shapes
from benchmarks.contenders import AUTOTUNE_STEPS
from benchmarks.rows import OURS, Row
from benchmarks.team import ContenderFailed

TUNED = "horovod autotuned"
CONTENDERS = {OURS: TUNED, "default": "horovod grouped", "planted bad": "horovod unfused"}


def run(bench: Bench) -> Rows:
    """One row."""
    name = f"{SMALL} small tensors, autotuned"
    shapes = sorted(prod(shape) for shape in resnet50_shapes())[:SMALL]
    teams, absent = bench.teams.get((TUNED,), RANKS)
    try:
        if absent:
            raise ContenderFailed(absent[TUNED])
        teams[TUNED].command("many", shapes=shapes, reps=AUTOTUNE_STEPS)
    except ContenderFailed as error:
        yield Row(name, not_run=str(error))
        return
    yield bench.compare(name, RANKS, same(CONTENDERS, "many", shapes=shapes, reps=5))
