# SPDX-License-Identifier: Apache-2.0
"""Collectives keep the order of the streams they are called from, and the host waits for nothing."""

from __future__ import annotations

import os

import pytest
import torch

BUSY_CYCLES = 20_000_000  # about 10 ms


def kernels_before_and_after() -> None:
    """Kernels queued before a collective are seen by it, and those after it see its result."""
    import horovod.torch as hvd

    size = hvd.size()
    stream = torch.cuda.Stream()
    for turn in range(20):
        with torch.cuda.stream(stream):
            x = torch.zeros(1 << 20, device="cuda")
            torch.cuda._sleep(BUSY_CYCLES // 10)  # nothing above has run yet when the next line is called
            x += turn
            y = hvd.synchronize(hvd.allreduce_async_(x, op=hvd.Sum, name=f"order.{turn}")) * 2
            gathered = hvd.allgather(y[:5], name=f"order.gather.{turn}") + 1
        stream.synchronize()
        assert y[0].item() == y[-1].item() == 2 * size * turn
        assert gathered.tolist() == [2.0 * size * turn + 1] * 5 * size


def waits_on_another_stream() -> None:
    import horovod.torch as hvd

    size = hvd.size()
    one, other = torch.cuda.Stream(), torch.cuda.Stream()
    for turn in range(10):
        with torch.cuda.stream(one):
            x = torch.zeros(300_000, device="cuda")
            torch.cuda._sleep(BUSY_CYCLES // 10)
            x += turn
            handle = hvd.allreduce_async_(x, op=hvd.Sum, name=f"other.{turn}")
        with torch.cuda.stream(other):
            y = hvd.synchronize(handle) + 1
        other.synchronize()
        assert y.eq(size * turn + 1.0).all()


def memory_is_not_reused_early() -> None:
    """Results and inputs that nobody holds any more are not given to others while they are in use."""
    import horovod.torch as hvd

    size = hvd.size()
    sums = []
    for turn in range(50):
        out = hvd.allreduce(torch.full((1 << 18,), float(turn), device="cuda"), op=hvd.Sum)
        torch.full((1 << 18,), -1.0, device="cuda")  # would take the input's memory
        sums.append(out[::1000].sum())
    wanted = [size * turn * len(range(0, 1 << 18, 1000)) for turn in range(50)]
    assert [s.item() for s in sums] == wanted


def poll_tells_when_the_gpu_is_done() -> None:
    import horovod.torch as hvd

    x = torch.ones(1000, device="cuda")
    torch.cuda._sleep(BUSY_CYCLES * 10)
    handle = hvd.allreduce_async(x, op=hvd.Sum, name="polled")
    assert not hvd.poll(handle)
    while not hvd.poll(handle):
        pass
    torch.cuda._sleep(BUSY_CYCLES)
    assert hvd.synchronize(handle).eq(float(hvd.size())).all()


def known_calls_need_no_plan() -> None:
    """Blocking calls under a known name, in one order with others that are under way."""
    import horovod.torch as hvd

    size, way = hvd.size(), os.environ["HOROVOD_GPU_OPERATIONS"]
    x = torch.zeros(1000, device="cuda")
    beside = torch.zeros(1 << 20, device="cuda")

    def calls(turns: range) -> None:
        for turn in turns:
            torch.cuda._sleep(BUSY_CYCLES // 100)
            x.fill_(turn)
            hvd.allreduce_(x, op=hvd.Sum, name="known")
            assert x.eq(float(size * turn)).all()
            if turn % 10 == 0:
                beside.fill_(turn)
                handle = hvd.allreduce_async_(beside, op=hvd.Sum, name="beside")
                x.fill_(turn + 1)
                hvd.allreduce_(x, op=hvd.Sum, name="known")
                assert hvd.synchronize(handle).eq(float(size * turn)).all()
                assert x.eq(float(size * (turn + 1))).all()

    calls(range(1, 3))
    for attempt in range(20):  # the engine's own thread may be in the way of some
        before = hvd.metrics()["plans"]
        calls(range(attempt, attempt + 20))
        plans = hvd.metrics()["plans"] - before
        few = hvd.allreduce(torch.tensor(float(plans <= 12)), op=hvd.Min, name="few").item()
        if way == "host" or few:
            break
    assert (way == "host") == (plans > 12), plans


def a_graph_is_refused() -> None:
    import horovod.torch as hvd

    x = torch.ones(100, device="cuda")
    hvd.allreduce(x, name="before the graph")
    graph = torch.cuda.CUDAGraph()
    for name in ("captured", "before the graph"):
        text = ""
        try:
            with torch.cuda.graph(graph):
                hvd.allreduce(x, name=name)
        except Exception as error:
            text = str(error)
        assert "graph" in text, text
    hvd.barrier()


CASES = [
    kernels_before_and_after, waits_on_another_stream, memory_is_not_reused_early,
    poll_tells_when_the_gpu_is_done, known_calls_need_no_plan, a_graph_is_refused,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_order(world, case):
    world.run(case, timeout=120)
