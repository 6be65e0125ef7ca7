# SPDX-License-Identifier: Apache-2.0
"""A blocking in-place allreduce of float32 and a barrier, beside Gloo, Open MPI, MPICH and memcpy."""

from __future__ import annotations

from typing import List

from benchmarks.bench import KIB, MIB, Bench, Rows, allreduces, calls
from benchmarks.goals import LATENCY_SIZES, MEMORY_SIZES
from benchmarks.machine import cores
from benchmarks.rows import OURS, Row
from benchmarks.units import ranks_text, size_text

OTHERS = ("gloo", "openmpi", "mpich")
BETWEEN = (KIB, 16 * KIB, 64 * MIB)  # for the plot
MANY = 16  # ranks that need a core each


def run(bench: Bench) -> Rows:
    """All sizes with 2 and 4 ranks; 4 B and a barrier with 1 and 16 as well."""
    for ranks in (1, 2, 4):
        sizes = [4]
        if ranks > 1:
            sizes += sorted([*LATENCY_SIZES, *MEMORY_SIZES, *(() if bench.quick else BETWEEN)])
        yield from _with(bench, ranks, sizes)
    if cores() >= MANY:
        yield from _with(bench, MANY, [4] if bench.quick else [4, 64 * KIB, MIB, 16 * MIB, 128 * MIB])
    else:
        why = f"needs {MANY} cores, a core each; this machine has {cores()}"
        yield Row(f"allreduce 4 B, {MANY} ranks", not_run=why, at={"ranks": MANY, "bytes": 4})
        yield Row(f"barrier, {MANY} ranks", not_run=why)


def _with(bench: Bench, ranks: int, sizes: List[int]) -> Rows:
    for size in sizes:
        name = f"allreduce {size_text(size)}, {ranks_text(ranks)}"
        jobs = allreduces((OURS, *OTHERS, "memcpy"), size)
        row = bench.compare(name, ranks, jobs)
        row.at = {"ranks": ranks, "bytes": size}
        yield row
        if size == 4:
            # It takes turns with the allreduce that it should not be slower than.
            barriers = calls((OURS, *OTHERS), "barrier", size)
            barriers["allreduce 4 B"] = jobs[OURS]
            yield bench.compare(f"barrier, {ranks_text(ranks)}", ranks, barriers)
