# SPDX-License-Identifier: Apache-2.0
"""Long runs: memory stays flat, and mixed operations from several threads stay right."""

from __future__ import annotations

import os
from typing import List

import torch
from tests_support import run_world


def resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def training_steps() -> List[int]:
    import gc

    import horovod.torch as hvd

    hvd.init()
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters()), model.named_parameters())
    x = torch.randn(4, 32)
    marks = []
    for step in range(10_000):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        if step % 20 == 0:
            hvd.allreduce(torch.ones(10))
            hvd.allgather(torch.ones(3, 1000))
            hvd.synchronize(hvd.broadcast_async(torch.ones(100), 0))
        if step in (2_000, 9_999):
            gc.collect()
            marks.append(resident())
    return marks


def test_memory_is_flat_over_10000_steps():
    for early, late in run_world(training_steps, 2, timeout=300):
        assert late - early < 8 << 20, f"{(late - early) >> 10} KiB more after 8,000 steps"


def threads() -> None:
    """Each thread has its own names, so the order between threads does not matter."""
    import random
    import threading

    import horovod.torch as hvd

    hvd.init()
    n, r = hvd.size(), hvd.rank()
    errors: List[BaseException] = []

    def work(number: int) -> None:
        mine = random.Random(number)  # the same sequence on every rank
        try:
            for turn in range(80):
                name = f"t{number}.{turn}"
                rows = mine.randint(1, 2000)
                verb = mine.choice(("sum", "async", "gather", "broadcast", "group", "alltoall", "scatter"))
                x = torch.full((rows, 2), float(r + 1))
                if verb == "sum":
                    assert hvd.allreduce(x, op=hvd.Sum, name=name).eq(n * (n + 1) / 2).all()
                elif verb == "async":
                    handles = [hvd.allreduce_async(x, op=hvd.Max, name=f"{name}.{k}") for k in range(5)]
                    assert all(hvd.synchronize(h).eq(n).all() for h in handles)
                elif verb == "gather":
                    out = hvd.allgather(x[: r + 1], name=name)
                    assert out.sum().item() == sum(2 * (k + 1) * min(k + 1, rows) for k in range(n))
                elif verb == "broadcast":
                    assert hvd.broadcast(x, turn % n, name=name).eq(turn % n + 1).all()
                elif verb == "group":
                    outs = hvd.grouped_allreduce([x, x.double()], op=hvd.Sum, name=name)
                    assert all(out.eq(n * (n + 1) / 2).all() for out in outs)
                elif verb == "alltoall":
                    out, received = hvd.alltoall(x.repeat(n, 1), [rows] * n, name=name)
                    assert received.tolist() == [rows] * n and out[0, 0] == 1 and out[-1, 0] == n
                else:
                    assert hvd.reducescatter(x.repeat(n, 1), op=hvd.Sum, name=name).eq(n * (n + 1) / 2).all()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]


def test_mixed_operations_from_several_threads():
    run_world(threads, 3, timeout=300)
