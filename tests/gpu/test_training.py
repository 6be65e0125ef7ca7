# SPDX-License-Identifier: Apache-2.0
"""Training on a GPU: the same weights as one process gets on the host, and no wait of the host in a step."""

from __future__ import annotations

import pytest
import torch
from torch_training import assert_same, batches, loss_of, net, sgd, shards


def like_one_process() -> None:
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


def without_sync_and_sparse() -> None:
    import horovod.torch as hvd

    torch.manual_seed(0)
    table = torch.nn.Embedding(20, 4, sparse=True).cuda()
    model = torch.nn.Linear(4, 2).cuda()
    named = [("table", table.weight), *model.named_parameters()]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p for _, p in named], lr=0.1), named)
    for step in range(3):
        optimizer.zero_grad()
        words = torch.tensor([hvd.rank(), step, 7], device="cuda")
        with optimizer.no_sync():
            model(table(words)).sum().backward()
        model(table(words)).square().sum().backward()
        optimizer.step()
    weights = hvd.allgather(torch.cat([p.detach().flatten() for _, p in named])[None])
    assert torch.equal(weights[0], weights[-1]) and weights.isfinite().all()


def mixed_precision_and_state() -> None:
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


def compiled() -> None:
    import horovod.torch as hvd

    model, reference = net().cuda(), net()
    step = torch.compile(model, backend="aot_eager")
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    plain = sgd(reference.parameters())
    for (x, y), (whole_x, whole_y) in zip(shards(hvd.rank(), hvd.size()), batches()):
        optimizer.zero_grad(), plain.zero_grad()
        loss_of(step, x.cuda(), y.cuda()).backward()
        loss_of(reference, whole_x, whole_y).backward()
        optimizer.step(), plain.step()
    assert_same(model.cpu(), reference, 1e-7)


@pytest.mark.parametrize(
    "case",
    [like_one_process, without_sync_and_sparse, mixed_precision_and_state, compiled],
    ids=lambda case: case.__name__,
)
def test_training(world, case):
    world.run(case, timeout=120)


def profiled_step() -> list:
    """Names of what the runtime and the driver were asked for in a step, after some steps to warm up."""
    import horovod.torch as hvd

    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)]).cuda()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters()
    )
    x = torch.randn(64, 512, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(3):
            with torch.profiler.record_function("one step"):
                step()
    events = profile.profiler.kineto_results.events()
    spans = [(e.start_ns(), e.start_ns() + e.duration_ns()) for e in events if e.name() == "one step"]
    inside = [e.name() for e in events if any(a <= e.start_ns() < b for a, b in spans)]
    torch.cuda.synchronize()
    return sorted(set(inside))


def test_no_wait_of_the_host_in_a_step(world):
    if world.way == "host":
        pytest.skip("through host memory, the host waits for the GPU")
    for names in world.run(profiled_step, timeout=120):
        assert any(name.startswith("cudaLaunchKernel") for name in names), names  # the profiler saw this
        waits = [name for name in names if "Synchronize" in name or name in ("cudaMemcpy", "cuMemcpyDtoH_v2")]
        assert not waits, waits
