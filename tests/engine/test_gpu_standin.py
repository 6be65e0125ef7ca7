# SPDX-License-Identifier: Apache-2.0
"""The engine's GPU path between processes, on stand-ins for the driver and NCCL: every way, sharing a GPU
with and without MPS, several hosts, and deaths in mid-collective."""

from __future__ import annotations

import json
import os

import pytest
from processes import Processes
from standin_gpu import standin_env
from tests_support import run_world
from world import World

COUNT = 300_000  # more than one tile, and not a whole number of them

# way, ranks, hosts, do they share GPU 0?, MPS, what the report must say
WAYS = {
    "direct": ("direct", 2, None, False, "1", '"spins": true'),
    "shared GPU": ("auto", 4, None, True, "1", "direct; no NCCL: it refuses ranks that share a GPU"),
    "shared GPU without MPS": ("auto", 2, None, True, "0", "take turns"),
    "NCCL": ("NCCL", 4, None, False, "1", '"nccl_batches": 6'),
    "NCCL on unequal hosts": ("auto", 3, "localhost:2,127.0.0.1:1", False, "1", "NCCL 2.28.9; not direct"),
    "host": ("host", 2, None, True, "1", '"host_batches": 6'),
    "auto": ("auto", 2, None, False, "1", "direct up to 1048576 bytes, NCCL 2.28.9 above"),
}


def all_verbs(shared: bool, count: int) -> dict:
    """Each verb once, and a fused group; returns the engine's report."""
    from standin_gpu import Gpu

    import horovod.numpy as hvd
    from horovod.common import constants, engine, gpu_report

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    gpu = Gpu(0 if shared else hvd.rank())

    def request(kind, name, shape, source, target, **more):
        return engine.request(
            kind, name, constants.FLOAT32, shape, source, target, device=gpu.device, stream=gpu.stream, **more
        )

    def gathered(handle, index=0):
        shape = engine.output(handle, index).shape_tuple()
        memory = gpu.allocate(shape[0] * shape[1])
        engine.copy_output(handle, index, memory, gpu.stream)
        return gpu.read(memory, shape[0] * shape[1])

    a = gpu.allocate(count)
    gpu.fill(a, rank + 1.0, count)
    engine.run_released(request(constants.ALLREDUCE, "a", (count,), a, a))
    total = size * (size + 1) / 2
    assert gpu.read(a, count) == [total] * count

    pairs = [(gpu.allocate(n), n) for n in (3, 0, 1000, 7)]
    for memory, n in pairs:
        gpu.fill(memory, float(n), n)
    handle = engine.run([request(constants.ALLREDUCE, f"g{n}", (n,), m, m) for m, n in pairs])
    engine.release(handle)
    for memory, n in pairs:
        assert gpu.read(memory, n) == [float(n * size)] * n

    gpu.fill(a, rank + 1.0, count)
    handle = engine.run([request(constants.ALLGATHER, "rows", (rank + 1, 3), a, 0)])
    wanted = [r + 1.0 for r in range(size) for _ in range(3 * (r + 1))]
    assert gathered(handle) == wanted
    engine.release(handle)

    handle = engine.run([request(constants.ALLTOALL, "pieces", (size, 5), a, 0, splits=[1] * size)])
    assert gathered(handle) == [r + 1.0 for r in range(size) for _ in range(5)]
    engine.release(handle)

    handle = engine.run([request(constants.REDUCESCATTER, "shares", (size + 1, 2), a, 0)])
    assert gathered(handle) == [total] * (4 if rank == 0 else 2)
    engine.release(handle)

    engine.run_released(request(constants.BROADCAST, "b", (count,), a, a, root=size - 1))
    assert gpu.read(a, count) == [float(size)] * count
    found = gpu_report.read()
    hvd.shutdown()
    return found


@pytest.mark.parametrize("way", WAYS)
def test_verbs(way):
    operations, np, hosts, shared, mps, said = WAYS[way]
    env = {**standin_env(), "HOROVOD_GPU_OPERATIONS": operations, "STANDIN_MPS": mps}
    for report in run_world(all_verbs, np, env=env, hosts=hosts, args=(shared, COUNT)):
        assert said in json.dumps(report)
        assert report["driver"] == 13000
        if "nccl" in report:
            assert (report["nccl"], report["nccl_origin"]) == ("2.28.9", "given")


def known_calls(shared: bool) -> None:
    """Blocking calls under one name, by Python's quick door; the first needs a plan, most others none."""
    from standin_gpu import Gpu

    import horovod.numpy as hvd
    from horovod.common import _calls, constants

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    gpu = Gpu(0 if shared else rank)
    memory, result = gpu.allocate(1000), gpu.allocate(1000)
    for turn in range(1, 31):
        gpu.fill(memory, float(turn * (rank + 1)), 1000)
        gpu.fill(result, -1.0, 1000)
        done = _calls.run_memory(
            gpu, constants.FLOAT32, (10, 100), memory, result, constants.ALLREDUCE, "allreduce", "known", 0,
            constants.Sum, 1.0, 0.5, -1, gpu.device, gpu.stream,
        )  # fmt: skip
        assert done is None
        assert gpu.read(result, 1000) == [turn * size * (size + 1) / 4] * 1000
        assert gpu.read(memory, 1000) == [float(turn * (rank + 1))] * 1000
    hvd.shutdown()


@pytest.mark.parametrize("way", WAYS)
def test_known_calls(way):
    operations, np, hosts, shared, mps, _ = WAYS[way]
    env = {**standin_env(), "HOROVOD_GPU_OPERATIONS": operations, "STANDIN_MPS": mps}
    run_world(known_calls, np, env=env, hosts=hosts, args=(shared,))


def reduce_once(name: str) -> dict:
    """One allreduce on GPU 0, which all ranks share; the engine goes on. Returns its report on the GPU."""
    from standin_gpu import Gpu

    import horovod.numpy as hvd
    from horovod.common import constants, engine, gpu_report

    hvd.init()
    gpu = Gpu(0)
    memory = gpu.allocate(COUNT)
    gpu.fill(memory, hvd.rank() + 1.0, COUNT)
    request = engine.request(
        constants.ALLREDUCE, name, constants.FLOAT32, (COUNT,), memory, memory, device=0, stream=gpu.stream
    )
    engine.run_released(request)
    assert gpu.read(memory, COUNT) == [hvd.size() * (hvd.size() + 1) / 2] * COUNT
    return gpu_report.read()["sets"][0]


def test_jobs_that_share_a_gpu_leave_each_other_room():
    """On the 4 multiprocessors of a stand-in 3 blocks may wait: those of two ranks of a job of three, one of
    the next of two, none of the third, which takes turns, until another one ends."""
    env = {**standin_env(), "HOROVOD_GPU_OPERATIONS": "direct"}

    def start(size):
        world = World(size, env=env)
        return world, world.run(reduce_once, "t")[0]

    jobs = [start(3), start(2), start(2)]
    assert [(found["spins"], found["blocks"]) for _, found in jobs[:2]] == [(True, 1), (True, 1)]
    assert not jobs[2][1]["spins"] and "other jobs fill the GPU of rank 0" in jobs[2][1]["way"]
    jobs[0][0].close()
    jobs.append(start(2))
    assert (jobs[3][1]["spins"], jobs[3][1]["blocks"]) == (True, 2)
    for world, _ in jobs[1:]:
        world.close()
    assert os.listdir(env["CUDA_MPS_PIPE_DIRECTORY"]) == []


DEATH = """
from standin_gpu import Gpu
from horovod.common import constants, engine
hvd.init()
gpu = Gpu({device})
count = 100_000
memory = gpu.allocate(count)
gpu.fill(memory, 1.0, count)
def reduce(name, wait):
    request = engine.request(constants.ALLREDUCE, name, constants.FLOAT32, (count,), memory, memory,
                             device=gpu.device, stream=gpu.stream)
    handle = engine.submit([request])
    (engine.wait if wait else lambda h: engine.wait_stream(h, gpu.stream))(handle)
    engine.release(handle)
reduce("first", True)
say("ready")
def loop():
    for i in range(10**9):
        reduce("t", i % 3 == 0)
attempt(loop)
# The devices of the survivors have let go, and so has this process: it begins another life, by itself.
gpu.synchronize()
hvd.shutdown()
for name in [name for name in os.environ if name.startswith("HOROVOD_GLOO") or name == "_HOROVOD_SECRET_KEY"]:
    del os.environ[name]
os.environ.update(HOROVOD_RANK="0", HOROVOD_SIZE="1", HOROVOD_LOCAL_RANK="0", HOROVOD_LOCAL_SIZE="1")
hvd.init()
gpu.fill(memory, 5.0, count)
reduce("again", False)
say(gpu.read(memory, count) == [5.0] * count)
"""


@pytest.mark.parametrize("way", ["direct", "shared GPU without MPS", "NCCL", "host"])
def test_a_killed_rank_is_named_and_devices_are_let_go(way):
    operations, _, _, shared, mps, _ = WAYS[way]
    env = {**standin_env(), "HOROVOD_GPU_OPERATIONS": operations, "STANDIN_MPS": mps}
    script = DEATH.replace("{device}", "0" if shared else "hvd.rank()")
    with Processes(script, 3, env=env) as ranks:
        for rank in range(3):
            assert ranks.heard(rank) == "ready"
        ranks.kill(2)
        for rank in range(2):
            outcome = ranks.heard(rank)
            assert outcome["error"] == "HorovodInternalError", outcome
            assert "rank 2" in outcome["text"]
            assert ranks.heard(rank) is True
        assert ranks.finish()[:2] == [0, 0]
