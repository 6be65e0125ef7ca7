# SPDX-License-Identifier: Apache-2.0
"""What a GPU did when, in the timeline and in the report of it; on stand-ins for the driver and NCCL."""

from __future__ import annotations

import pytest
from standin_gpu import standin_env
from tests_support import run_world

from horovod.common import timelines
from horovod.runner.report.reading import read_job

WAYS = ("direct", "NCCL", "host")
COUNT = 400_000  # floats: one that travels from where it lies
ROUGHLY_S = 0.3  # how far a busy machine may be off when it compares the clocks of host and GPU


def reduce_and_trace(path: str) -> dict:
    """A fused batch and a large tensor while a timeline runs, and some before; returns what was seen."""
    import time

    from standin_gpu import Gpu

    import horovod.numpy as hvd
    from horovod.common import constants, engine

    hvd.init()
    gpu = Gpu(hvd.rank())
    small = [(f"small{i}", gpu.allocate(100), 100) for i in range(3)]
    large = [("large", gpu.allocate(COUNT), COUNT)]

    def reduce(tensors):
        requests = [
            engine.request(
                constants.ALLREDUCE, name, constants.FLOAT32, (n,), memory, memory, device=gpu.device,
                stream=gpu.stream,
            )
            for name, memory, n in tensors
        ]  # fmt: skip
        handle = engine.submit(requests)
        engine.wait_stream(handle, gpu.stream)
        engine.release(handle)

    for _, memory, n in small + large:
        gpu.fill(memory, 1.0, n)
    reduce(small)
    gpu.synchronize()
    untraced = gpu.calls("cuEventElapsedTime")
    hvd.start_timeline(path)
    waits = gpu.calls("cuStreamSynchronize")
    begun = time.time()
    for _ in range(3):
        reduce(small)
        reduce(large)
    waited = gpu.calls("cuStreamSynchronize") - waits
    gpu.synchronize()
    ended = time.time()
    hvd.stop_timeline()
    values = {name: gpu.read(memory, n)[n // 2] for name, memory, n in small + large}
    hvd.shutdown()
    return dict(untraced=untraced, waited=waited, begun=begun, ended=ended, values=values)


@pytest.fixture(scope="module", params=WAYS)
def traced(request, tmp_path_factory):
    path = str(tmp_path_factory.mktemp(request.param) / "t.json")
    env = {**standin_env(), "HOROVOD_GPU_OPERATIONS": request.param, "HOROVOD_TIMELINE": "DYNAMIC"}
    return request.param, path, run_world(reduce_and_trace, 2, env=env, args=(path,))


def paths_of(path):
    return [path, path.replace(".json", ".rank1.json")]


def test_a_row_for_the_gpu(traced):
    way, path, seen = traced
    for rank, file in enumerate(paths_of(path)):
        events = timelines.read(file)
        row = next(e["pid"] for e in events if e["ph"] == "M" and e["args"].get("name") == f"GPU {rank}")
        spans = [e for e in events if e.get("pid") == row and e.get("ph") == "X"]
        batches = [e for e in spans if "args" in e]
        names = [e["name"] for e in batches]
        assert names.count("large") == 3
        assert names.count("small0 and 2 more") == 3
        assert {e["args"]["way"] for e in batches} == {way}
        assert {e["args"]["bytes"] for e in batches} == {1200, 4 * COUNT}
        parts = [e["name"] for e in spans if "args" not in e]
        assert (parts.count("PACK"), parts.count(way), parts.count("UNPACK")) == (3, 6, 3)
        # Parts lie within their batch, one after the other, and by the host's clock they were after the call.
        start = timelines.identity(events)["start_time_since_epoch_in_micros"]
        for batch in batches:
            inside = [
                e for e in spans if "args" not in e and batch["ts"] <= e["ts"] <= batch["ts"] + batch["dur"]
            ]
            assert sum(e["dur"] for e in inside) >= batch["dur"] > 0
            assert seen[rank]["begun"] - ROUGHLY_S < (start + batch["ts"]) / 1e6
            assert (start + batch["ts"] + batch["dur"]) / 1e6 < seen[rank]["ended"] + ROUGHLY_S


def test_the_report_counts_what_the_gpu_did(traced):
    _, path, _ = traced
    for trace, file in zip(read_job([path]).traces, paths_of(path)):
        events = timelines.read(file)
        spans = {e["args"]["seq"]: e for e in events if e.get("cat") == "horovod_gpu" and "args" in e}
        operations = [op for op in trace.operations if op.seq in spans]
        assert len(operations) == 3 * 4  # three times three small and a large one
        for op in operations:
            span = spans[op.seq]
            assert op.ended - op.started == pytest.approx(span["dur"], abs=2)
            assert op.submitted <= op.ready <= op.started
        assert {"GPU PACK", "GPU UNPACK"} < set(trace.parts)


def test_nothing_is_recorded_without_a_timeline_and_nobody_waits(traced):
    way, _, seen = traced
    for one in seen:
        assert one["untraced"] == 0
        assert one["waited"] == 0
        assert one["values"] == {"small0": 16.0, "small1": 16.0, "small2": 16.0, "large": 8.0}
