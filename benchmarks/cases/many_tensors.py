# SPDX-License-Identifier: Apache-2.0
"""The gradients of one ResNet-50 step: 161 tensors, 102 MB, 107 of them small.

One by one is a call for each tensor, all of them waited for at the end; blocking waits for each before the
next; grouped is one call for all.
"""

from __future__ import annotations

from math import prod
from typing import List, Tuple

from benchmarks.bench import Bench, Rows, same
from benchmarks.rows import OURS

RANKS = 2
SMALL = 107
OTHERS = ("openmpi", "mpich", "gloo", "gloo buckets")


def resnet50_shapes() -> List[Tuple[int, ...]]:
    """Shapes of all parameters, in the order the model defines them."""
    shapes: List[Tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    inputs = 64
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            outputs = 4 * width
            for shape in ((width, inputs, 1, 1), (width, width, 3, 3), (outputs, width, 1, 1)):
                shapes += [shape, (shape[0],), (shape[0],)]
            if block == 0:
                shapes += [(outputs, inputs, 1, 1), (outputs,), (outputs,)]
            inputs = outputs
    return [*shapes, (1000, 2048), (1000,)]


def run(bench: Bench) -> Rows:
    """The small ones; in a full run also all of them."""
    counts = [prod(shape) for shape in reversed(resnet50_shapes())]  # gradients arrive from the last layer
    small = sorted(counts)[:SMALL]
    for label, shapes in ((f"{SMALL} small tensors", small), (f"all {len(counts)} tensors", counts)):
        if bench.quick and shapes is counts:
            continue
        reps = 5 if shapes is small else 3
        others = same(OTHERS, "many", shapes=shapes, reps=reps)
        blocking = same(
            {"horovod blocking": OURS, "openmpi blocking": "openmpi"}, "blocking", shapes=shapes, reps=reps
        )
        ours = same((OURS,), "many", shapes=shapes, reps=reps)
        yield bench.compare(f"{label} one by one", RANKS, {**ours, **others, **blocking})
        grouped = same({OURS: "horovod grouped"}, "many", shapes=shapes, reps=reps)
        yield bench.compare(f"{label} grouped", RANKS, {**grouped, **others})
