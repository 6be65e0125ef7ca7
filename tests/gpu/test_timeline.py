# SPDX-License-Identifier: Apache-2.0
"""What the timeline says of a real GPU: its batches follow each other on a stream, after they were handed to
it and before the host saw their results."""

from __future__ import annotations

import time

from horovod.common import timelines
from horovod.runner.report.reading import read_job

CLOCKS_US = 500  # how far the clocks of GPU and host, as they are told, may be apart


def traced_steps(path: str, steps: int) -> tuple:
    """Steps of training while a timeline runs; returns when the host saw the first begin and the last end."""
    import torch

    import horovod.torch as hvd

    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).cuda()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1e-3), model.named_parameters()
    )
    x = torch.randn(64, 1024, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step()
    torch.cuda.synchronize()
    hvd.start_timeline(path)
    step()  # with this one the engine hears of it
    torch.cuda.synchronize()
    hvd.barrier()
    begun = time.time()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    ended = time.time()
    hvd.stop_timeline()
    hvd.barrier()
    return begun, ended


def test_batches_on_the_gpus_own_row(world, tmp_path):
    path = str(tmp_path / "t.json")
    times = world.run(traced_steps, path, 5, timeout=120)
    job = read_job([path])
    assert len(job.traces) == len(times)
    for rank, (trace, (begun, ended)) in enumerate(zip(job.traces, times)):
        events = timelines.read(path if rank == 0 else path.replace(".json", f".rank{rank}.json"))
        start = timelines.identity(events)["start_time_since_epoch_in_micros"]
        spans = sorted(
            (e for e in events if e.get("cat") == "horovod_gpu" and "args" in e), key=lambda e: e["ts"]
        )
        assert {e["args"]["way"] for e in spans} == {world.way}
        handed = {
            e["args"]["seq"]: e["ts"] for e in events if e.get("ph") == "B" and e["name"] == "ALLREDUCE"
        }
        for before, after in zip(spans, spans[1:]):
            assert before["ts"] + before["dur"] <= after["ts"] + CLOCKS_US, (before, after)
        for one in spans:
            assert one["ts"] > handed[one["args"]["seq"]] - CLOCKS_US, one
            assert start + one["ts"] + one["dur"] < ended * 1e6 + CLOCKS_US, one
        assert (
            sum(e["args"]["bytes"] for e in spans if start + e["ts"] > begun * 1e6) >= 5 * 8 * 1024 * 1025 * 4
        )
        told = [op for op in trace.operations if op.kind == "ALLREDUCE" and op.bytes > 1024]
        assert len(told) >= 5 * 8
        assert all(op.submitted <= op.ready <= op.started < op.ended for op in told)
