# SPDX-License-Identifier: Apache-2.0
"""Training with horovod.torch beside torch's DistributedDataParallel on Gloo, and beside no communication.

    horovod     hvd.DistributedOptimizer
    ddp         DistributedDataParallel, Gloo
    local       all processes at once, no communication: what a step costs with company

Hidden is the share of the communication that cost no time: 1 - (horovod - local) / communication, where
communication is the time to reduce all gradients when nothing is computed. A hook's cost is the processor
time that it takes out of backward for one parameter, submission included, with caches as the model leaves
them.
"""

from __future__ import annotations

import importlib.util

from benchmarks.bench import Bench, Rows, same
from benchmarks.rows import OURS, Row

RANKS = 2
TRAINED = {"linear": "20 x Linear(1024)", "residual": "convolution net"}
HOOKED = {"small": "160 parameters", "linear": "20 x Linear(1024)", "residual": "convolution net"}


def run(bench: Bench) -> Rows:
    """2 ranks, one thread each."""
    if importlib.util.find_spec("torch") is None:
        names = [f"torch hook, {text}" for text in HOOKED.values()]
        names += [f"training, {text}" for text in TRAINED.values()]
        for name in names:
            yield Row(name, not_run="torch is not installed")
        return
    for model, text in HOOKED.items():
        yield bench.compare(
            f"torch hook, {text}", RANKS, same({OURS: "horovod.torch"}, "hooks", model=model, reps=1)
        )
    contenders = {OURS: "horovod.torch", "ddp": "ddp", "local": "alone"}
    for model, text in TRAINED.items():
        row = bench.compare(f"training, {text}", RANKS, same(contenders, "train", model=model, reps=3))
        _add_hidden(bench, row, model)
        yield row


def _add_hidden(bench: Bench, row: Row, model: str) -> None:
    """Measures the communication by itself, and what share of it the training step hid."""
    job = same({OURS: "horovod.torch"}, "gradients", model=model, reps=3)
    alone = bench.compare("communication", RANKS, job).ours
    if alone is None or row.ours is None or "local" not in row.times:
        return
    cost = row.ours.median - row.times["local"].median
    row.facts["communication_us"] = alone.median
    row.facts["hidden"] = min(1.0, max(0.0, 1 - cost / alone.median))
