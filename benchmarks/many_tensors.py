# SPDX-License-Identifier: Apache-2.0
"""The gradients of one ResNet-50 step: 161 tensors, 102 MB, most of them small."""

from __future__ import annotations

from math import prod
from typing import Any, Dict, List, Tuple

from benchmarks.harness import print_table, start_teams, take_turns

CONTENDERS = ("horovod", "horovod_grouped", "gloo", "gloo_buckets", "openmpi", "mpich")


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


def run(quick: bool = False) -> Dict[str, Any]:
    """{"resnet50": {contender: {...}}, "small": ...}; small is the 150 smallest of them alone."""
    counts = [prod(shape) for shape in reversed(resnet50_shapes())]  # gradients arrive from the last layer
    cases = {"small tensors": sorted(counts)[:107]}
    if not quick:
        cases["all 161"] = counts
    teams = start_teams(("horovod", "gloo") if quick else CONTENDERS, 2)
    rows: Dict[str, Any] = {}
    try:
        for name, sizes in cases.items():
            rows[name] = take_turns(teams, 2 if quick else 5, "many", shapes=sizes, reps=3)
    finally:
        for team in teams.values():
            team.close()
    print_table("one step of ResNet-50 gradients, 2 ranks", "tensors", rows)
    return rows
