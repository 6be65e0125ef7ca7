# SPDX-License-Identifier: Apache-2.0
"""Jobs that share a GPU the direct way, at the same time: each gets its results."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor

import pytest
from real_gpu import gpu_world, report, went


def many_reductions() -> bool:
    """Kernels that want all the room they may have, back to back, beside those of other jobs."""
    import torch

    import horovod.torch as hvd

    x = torch.full((8 << 20,), hvd.rank() + 1.0, device="cuda")
    results = [hvd.allreduce_async(x, op=hvd.Sum, name=f"t{i % 4}") for i in range(4)]
    right = True
    for i in range(200):
        y = hvd.synchronize(results[i % 4])
        right &= bool((y[:: 1 << 20] == hvd.size() * (hvd.size() + 1) / 2).all()) if i % 50 == 0 else True
        results[i % 4] = hvd.allreduce_async(x, op=hvd.Sum, name=f"t{i % 4}")
    for handle in results:
        hvd.synchronize(handle)
    torch.cuda.synchronize()
    return right


def behind_products(rounds: int) -> bool:
    """The last rank has large products to compute first: they find a place beside kernels that wait."""
    import torch

    import horovod.torch as hvd

    late = hvd.rank() == hvd.size() - 1
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    x = torch.ones(16 << 20, device="cuda")
    sums = []
    for _ in range(rounds):
        handles = []
        for i in range(8):
            for _ in range(6 if late else 1):
                a @ a
            handles.append(hvd.allreduce_async(x, op=hvd.Sum, name=f"t{i}"))
        sums = [hvd.synchronize(handle) for handle in handles]
    torch.cuda.synchronize()
    return all(bool((y[:: 1 << 20] == hvd.size()).all()) for y in sums)


def multiprocessors() -> int:
    import torch

    return torch.cuda.get_device_properties(0).multi_processor_count


@pytest.mark.parametrize("np", [4], ids=["direct-4"])
def test_kernels_that_wait_leave_room_for_what_they_wait_for(np):
    world = gpu_world(np, "direct")
    try:
        assert world.run(functools.partial(behind_products, 40), timeout=120) == [True] * np
    finally:
        world.close()


@pytest.mark.parametrize("np, jobs", [(2, 2)], ids=["direct-2"])
def test_jobs_beside_each_other(np, jobs):
    worlds = [gpu_world(np, "direct") for _ in range(jobs)]
    try:
        with ThreadPoolExecutor(jobs) as pool:
            done = list(pool.map(lambda world: world.run(many_reductions, timeout=120), worlds))
        assert done == [[True] * np] * jobs
        found = [world.run(report)[0]["sets"][0] for world in worlds]
        # One of a job has not come while the others wait: a quarter of the multiprocessors is left for it.
        assert went("direct", found), found
        waiting = sum(one["blocks"] * (np - 1) for one in found if one["spins"])
        assert waiting <= multiprocessors() * 3 // 4, found
    finally:
        for world in worlds:
            world.close()
