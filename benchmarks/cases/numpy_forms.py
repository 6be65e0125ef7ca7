# SPDX-License-Identifier: Apache-2.0
"""horovod.numpy out of place, where every call makes its result, beside in place."""

from __future__ import annotations

from benchmarks.bench import KIB, MIB, Bench, Rows, allreduces
from benchmarks.rows import OURS
from benchmarks.units import size_text


def run(bench: Bench) -> Rows:
    """2 ranks; the row's own time is that of the form out of place."""
    forms = {OURS: "horovod out of place", "in place": "horovod"}
    for size in (64 * MIB,) if bench.quick else (4, 64 * KIB, MIB, 64 * MIB):
        yield bench.compare(f"NumPy out of place, {size_text(size)}", 2, allreduces(forms, size))
