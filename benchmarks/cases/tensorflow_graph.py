# SPDX-License-Identifier: Apache-2.0
"""TensorFlow: what the in-graph kernel adds to the engine, and what a second rank is worth.

One tensor of 64 MiB is an argument and a result of the function. It also goes through horovod.numpy: in
place, and out of place, which makes its result as the graph does, since the caller of the graph keeps its
tensors.

160 gradients are what a training step has of them: each is made in the graph from a variable, reduced as the
tapes and optimizers do it, and applied to the variable in the graph. "TensorFlow alone" is the same step
without collectives, as a single process runs it, so the difference is what they cost. horovod.numpy only
reduces 160 arrays, and makes and applies none.

"in and out" is what the row of 160 gradients was before: 160 tensors as Python arguments and as results of
the function. No training step does that, and to take and to return them costs TensorFlow more than the
collectives cost. The row has no goal.
"""

from __future__ import annotations

import importlib.util

from benchmarks.bench import MIB, Bench, Rows, allreduces, same
from benchmarks.rows import OURS, Row
from benchmarks.turns import Command, Work, take_turns
from benchmarks.units import size_text

GRADIENTS = [256] * 160  # elements of each


def run(bench: Bench) -> Rows:
    """2 ranks."""
    large = f"TensorFlow graph, {size_text(64 * MIB)}"
    step = f"TensorFlow graph, {len(GRADIENTS)} gradients"
    in_and_out = f"TensorFlow graph, {len(GRADIENTS)} tensors in and out"
    if importlib.util.find_spec("tensorflow") is None:
        for name in (large, step, in_and_out):
            yield Row(name, not_run="TensorFlow is not installed")
        return
    contenders = {
        OURS: "horovod.tensorflow",
        "numpy": "horovod",
        "numpy out of place": "horovod out of place",
    }
    yield bench.compare(large, 2, allreduces(contenders, 64 * MIB))
    numpy = same({"numpy": "horovod"}, "many", shapes=GRADIENTS, reps=10)
    graphs = {OURS: "horovod.tensorflow", "TensorFlow alone": "tensorflow alone"}
    yield bench.compare(step, 2, {**same(graphs, "many", shapes=GRADIENTS, reps=10), **numpy})
    yield bench.compare(in_and_out, 2, {**same(graphs, "in_and_out", shapes=GRADIENTS, reps=10), **numpy})
    if not bench.quick:
        yield _keras(bench)


def _keras(bench: Bench) -> Row:
    """128 images: a step of 64 on each of 2 ranks with a thread each, or two steps in one process."""
    two, absent = bench.teams.get(("horovod.tensorflow",), 2)
    one, missing = bench.teams.get(("horovod.tensorflow", "tensorflow, all cores"), 1)
    labels = {"horovod.tensorflow": "1 process, 1 thread", "tensorflow, all cores": "1 process, all cores"}
    works: dict[str, Work] = {}
    for team in two.values():
        works[OURS] = Command(team, "train", model="keras", reps=5)
    for name, team in one.items():
        works[labels[name]] = Command(team, "train", model="keras", reps=5, steps=2)
    reasons = {labels[name]: why for name, why in missing.items()}
    for why in absent.values():
        reasons[OURS] = why
    return take_turns("Keras, 128 images of a small net", works, bench.patience, reasons)
