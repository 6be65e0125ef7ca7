# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors: the verbs, their order with the kernels around them, and training; the ranks share a GPU."""

from __future__ import annotations

import pytest
import torch
from tests_support import shared_world
from torch_training import assert_same, batches, loss_of, net, sgd, shards

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")


def verbs() -> None:
    import horovod.torch as hvd

    n, r = hvd.size(), hvd.rank()
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        x = torch.ones(5, 2, device="cuda").to(dtype)
        out = hvd.allreduce(x, op=hvd.Max)
        assert out.is_cuda and out.dtype is dtype and out.eq(1).all()
    x = torch.full((n, 3), float(r + 1), device="cuda")
    total = n * (n + 1) / 2
    assert hvd.allreduce(x, op=hvd.Sum).eq(total).all()
    assert hvd.synchronize(hvd.allreduce_async(x, op=hvd.Sum)).eq(total).all()
    y = x.clone()
    assert hvd.allreduce_(y, op=hvd.Sum) is y and y.eq(total).all()
    y = x.clone()
    assert hvd.synchronize(hvd.allreduce_async_(y, op=hvd.Sum)) is y and y.eq(total).all()
    for out in hvd.grouped_allreduce([x, x.t()], op=hvd.Sum):
        assert out.is_cuda and out.eq(total).all()
    gathered = hvd.allgather(x[: r + 1])
    assert gathered.is_cuda and gathered.shape == (sum(range(1, n + 1)), 3)
    y = x.clone()
    assert hvd.broadcast_(y, 1) is y and y.eq(2).all()
    out, received = hvd.alltoall(x, torch.ones(n, dtype=torch.int32, device="cuda"))
    assert out.is_cuda and received.is_cuda and out[:, 0].tolist() == [k + 1.0 for k in range(n)]
    assert hvd.reducescatter(x, op=hvd.Sum).eq(total).all()
    mixed = torch.ones(2, device="cuda", requires_grad=True)
    hvd.allreduce(mixed, op=hvd.Sum).sum().backward()
    assert mixed.grad.is_cuda and mixed.grad.eq(n).all()


def order_with_kernels() -> None:
    """Kernels queued before a collective are seen by it, and those after it see its result."""
    import horovod.torch as hvd

    n = hvd.size()
    stream = torch.cuda.Stream()
    for turn in range(20):
        with torch.cuda.stream(stream):
            x = torch.zeros(1 << 20, device="cuda")
            torch.cuda._sleep(2_000_000)  # keeps the stream busy, so that nothing above has run yet
            x += turn
            handle = hvd.allreduce_async_(x, op=hvd.Sum, name=f"order.{turn}")
            hvd.synchronize(handle)
            y = x * 2
        stream.synchronize()
        assert y[0].item() == y[-1].item() == 2 * n * turn


def training() -> None:
    import horovod.torch as hvd

    for kwargs in ({}, {"compression": hvd.Compression.bf16}, {"groups": 2}, {"backward_passes_per_step": 2}):
        model, reference = net().cuda(), net()
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), **kwargs)
        plain = sgd(reference.parameters())
        passes = kwargs.get("backward_passes_per_step", 1)
        for (x, y), (whole_x, whole_y) in zip(shards(hvd.rank(), hvd.size()), batches()):
            optimizer.zero_grad(), plain.zero_grad()
            for _ in range(passes):
                loss_of(model, x.cuda(), y.cuda()).backward()
                loss_of(reference, whole_x, whole_y).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.05)
            optimizer.step(), plain.step()
        assert_same(model.cpu(), reference, 1e-2 if "compression" in kwargs else 1e-7)


def scaler_and_state() -> None:
    import horovod.torch as hvd

    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), hvd.SyncBatchNorm(8), torch.nn.Linear(8, 3)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    scaler = torch.amp.GradScaler("cuda", init_scale=4.0)
    for step, (x, y) in enumerate(shards(hvd.rank(), hvd.size())):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = loss_of(model, x.float().cuda(), y.float().cuda())
        if step == 1 and hvd.rank() == 0:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 2.0
    hvd.broadcast_optimizer_state(optimizer, root_rank=1)
    weights = hvd.allgather(torch.cat([p.detach().flatten() for p in model.parameters()])[None])
    assert torch.equal(weights[0], weights[1]) and weights.isfinite().all()


@pytest.mark.parametrize("case", [verbs, order_with_kernels, training, scaler_and_state])
def test_cuda(case):
    shared_world(2).run(case, timeout=300)
