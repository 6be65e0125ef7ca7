# SPDX-License-Identifier: Apache-2.0
"""A step finds the memory that the step before it has freed."""

from __future__ import annotations

import platform
import resource
from pathlib import Path
from typing import List

import pytest
import torch
from tests_support import run_world

BLOCKS, BLOCK = 48, 1 << 18  # 48 MiB of float32, as activations and gradients are: many, freed together
PAGES = BLOCKS * BLOCK * 4 // resource.getpagesize()
HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def faults_of_a_step() -> int:
    """Page faults of the last of a few steps."""
    import horovod.torch as hvd

    hvd.init()
    model = torch.nn.Linear(4, 1)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    counts: List[int] = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [torch.ones(BLOCK) for _ in range(BLOCKS)]
        model(blocks[-1][:4]).sum().backward()
        optimizer.step()
        del blocks
        counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    hvd.shutdown()
    return counts[-1]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the heap of glibc")
@pytest.mark.skipif(HUGE.exists() and "[always]" in HUGE.read_text(), reason="a fault brings 512 pages here")
@pytest.mark.parametrize(
    "env, kept",
    [({}, True), ({"HOROVOD_HEAP_KEEP_BYTES": "0"}, False), ({"MALLOC_TRIM_THRESHOLD_": "1048576"}, False)],
    ids=["by default", "turned off", "set by somebody"],
)
def test_page_faults(env, kept):
    for faults in run_world(faults_of_a_step, 2, env=env):
        assert (faults < PAGES / 10) is kept, (faults, PAGES)
