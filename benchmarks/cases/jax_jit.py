# SPDX-License-Identifier: Apache-2.0
"""A jitted allreduce beside horovod.numpy and beside the same call through jax's io_callback.

The jitted program reduces a donated argument in place, as a training step reduces its gradients;
horovod.numpy reduces in place as well. io_callback is what remains without a custom call: jax copies the
operand to the host function and the result back.
"""

from __future__ import annotations

import importlib.util

from benchmarks.bench import MIB, Bench, Rows, allreduces
from benchmarks.rows import OURS, Row
from benchmarks.units import size_text


def run(bench: Bench) -> Rows:
    """2 ranks."""
    contenders = {OURS: "horovod.jax", "numpy": "horovod", "io_callback": "jax io_callback"}
    for size in (64 * MIB,) if bench.quick else (4, MIB, 64 * MIB):
        name = f"jax.jit, {size_text(size)}"
        if importlib.util.find_spec("jax") is None:
            yield Row(name, not_run="jax is not installed")
        else:
            yield bench.compare(name, 2, allreduces(contenders, size))
