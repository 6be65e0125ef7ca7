# SPDX-License-Identifier: Apache-2.0
"""horovod.torch's way with CUDA tensors on machines without a GPU: CPU tensors are taken for CUDA tensors,
and the engine works on them through stand-ins for the driver and NCCL."""

from __future__ import annotations

import pytest
import torch
from standin_gpu import standin_env
from tests_support import World
from torch_training import assert_same, batches, loss_of, net, sgd, shards


@pytest.fixture(scope="module", params=["direct", "NCCL", "host"])
def world(request):
    made = World(2, env={**standin_env(), "HOROVOD_GPU_OPERATIONS": request.param})
    made.run(pretend)
    yield made
    made.close()


def pretend() -> None:
    from standin_gpu import Gpu, pretend_cuda

    import horovod.torch as hvd

    pretend_cuda(Gpu(hvd.local_rank()))


def verbs() -> None:
    import horovod.torch as hvd
    from horovod.common import gpu_report

    n, r = hvd.size(), hvd.rank()
    total = n * (n + 1) / 2
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        assert hvd.allreduce(torch.ones(5, 2).to(dtype), op=hvd.Max).eq(1).all()
    x = torch.full((n, 3), float(r + 1))
    assert hvd.allreduce(x, op=hvd.Sum).eq(total).all() and x.eq(r + 1).all()
    assert hvd.synchronize(hvd.allreduce_async(x, op=hvd.Sum)).eq(total).all()
    y = x.clone()
    assert hvd.allreduce_(y, op=hvd.Sum) is y and y.eq(total).all()
    y = x.clone()
    assert hvd.synchronize(hvd.allreduce_async_(y, op=hvd.Sum)) is y and y.eq(total).all()
    for out in hvd.grouped_allreduce([x, x.t()], op=hvd.Sum):
        assert out.eq(total).all()
    gathered = hvd.allgather(x[: r + 1])
    assert gathered[:, 0].tolist() == [k + 1.0 for k in range(n) for _ in range(k + 1)]
    y = x.clone()
    assert hvd.broadcast_(y, 1) is y and y.eq(2).all()
    out, received = hvd.alltoall(x, torch.ones(n, dtype=torch.int32))
    assert out[:, 0].tolist() == [k + 1.0 for k in range(n)] and received.tolist() == [1] * n
    assert hvd.reducescatter(x, op=hvd.Sum).eq(total).all()
    z = torch.ones(2, requires_grad=True)
    hvd.allreduce(z, op=hvd.Sum).sum().backward()
    assert z.grad.eq(n).all()
    assert gpu_report.read()["sets"][0]["ranks"] == n


def training() -> None:
    import horovod.torch as hvd

    for kwargs in ({}, {"compression": hvd.Compression.bf16}, {"groups": 2}, {"op": hvd.Sum}):
        model, reference = net(), net()
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), **kwargs)
        plain = sgd(reference.parameters())
        for (x, y), (whole_x, whole_y) in zip(shards(hvd.rank(), hvd.size()), batches()):
            optimizer.zero_grad(), plain.zero_grad()
            loss_of(model, x, y).backward()
            scale = hvd.size() if "op" in kwargs else 1
            (loss_of(reference, whole_x, whole_y) * scale).backward()
            optimizer.step(), plain.step()
        assert_same(model, reference, 2e-2 if "compression" in kwargs else 1e-7)


def sparse_and_synchronised() -> None:
    import horovod.torch as hvd

    torch.manual_seed(0)
    table = torch.nn.Embedding(20, 4, sparse=True)
    norm = hvd.SyncBatchNorm(4)
    named = [("table", table.weight), *norm.named_parameters()]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p for _, p in named], lr=0.1), named)
    for step in range(3):
        optimizer.zero_grad()
        norm(table(torch.tensor([hvd.rank(), step, 7]))).square().sum().backward()
        optimizer.step()
    weights = hvd.allgather(torch.cat([p.detach().flatten() for _, p in named])[None])
    assert torch.equal(weights[0], weights[1]) and weights.isfinite().all()


@pytest.mark.parametrize("case", [verbs, training, sparse_and_synchronised], ids=lambda case: case.__name__)
def test_on_stand_ins(world, case):
    world.run(case, timeout=120)
