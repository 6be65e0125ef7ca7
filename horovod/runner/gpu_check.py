# SPDX-License-Identifier: Apache-2.0
"""The GPU part of horovodrun --check: who has which GPU, and how fast each way between them is.

Every rank takes GPU local_rank, as the tutorials do, through the driver alone: no framework is needed.
"""

from __future__ import annotations

import os
import time
from typing import Callable, Dict, List, Optional, Sequence

from horovod.common import constants, engine, gpu_report, nvidia
from horovod.common.basics import basics
from horovod.common.exceptions import HorovodInternalError
from horovod.common.objects import allgather_object
from horovod.rendezvous.detection import detect
from horovod.runner.driver_gpu import CudaFailed, Gpu, gpus_here

WAYS = ("direct", "NCCL", "host")
_SMALL, _LARGE = 4, 64 << 20  # bytes
_COUNT = 1000
SAME_GPU = "="
_MARKS = {True: "+", False: "-", None: "?"}


def lines() -> List[str]:
    """What --check says about GPUs; collective over all ranks. Each way is tried in a life of its own."""
    counts = allgather_object(gpus_here(), name="gpu_check.count")
    if not all(counts):
        without = [rank for rank, count in enumerate(counts) if not count]
        if len(without) == len(counts):
            return ["GPUs: none (no NVIDIA driver, or it shows none)"]
        return [f"GPUs: none for ranks {without}, so GPU tensors cannot be used in this job"]
    gpu = Gpu(basics.local_rank() % gpus_here())
    memory = gpu.allocate(_LARGE // 4)
    mine = f"rank {basics.rank()} GPU {gpu.device} ({gpu.name()})"
    said = ["GPUs: " + ", ".join(allgather_object(mine, name="gpu_check.names"))]
    said += _reach(gpu)
    before = os.environ.get("HOROVOD_GPU_OPERATIONS")
    said += _versions()
    for way in ("auto", *WAYS):
        found = _one_way(way, gpu, memory)
        said.append(f"GPU tensors go: {found}" if way == "auto" else f"  {way}: {found}")
    _begin_with(before)
    return said


def _reach(gpu: Gpu) -> List[str]:
    """Which ranks' GPUs can read each other's memory, a table for each host with several ranks."""
    everybody = allgather_object((detect().host, gpu.uuid()), name="gpu_check.uuids")
    mine = everybody[basics.rank()]
    row = {
        rank: SAME_GPU if uuid == mine[1] else _MARKS[gpu.reaches(uuid)]
        for rank, (host, uuid) in enumerate(everybody)
        if host == mine[0]
    }
    rows = allgather_object(row, name="gpu_check.reach")
    return reach_tables([host for host, _ in everybody], rows)


def reach_tables(hosts: Sequence[str], rows: Sequence[Dict[int, str]]) -> List[str]:
    """
    Args:
        hosts: of each rank.
        rows: for each rank the mark of every rank of its host.
    """
    said: List[str] = []
    for host in dict.fromkeys(hosts):
        ranks = [rank for rank, one in enumerate(hosts) if one == host]
        if len(ranks) < 2:
            continue
        width = len(str(ranks[-1])) + 1
        said.append(f"which GPU reads which, host {host} (= the same one, + yes, - no, ? not visible):")
        said.append(" " * (width + 7) + "".join(f"{rank:{width}}" for rank in ranks))
        for rank in ranks:
            marks = "".join(f"{rows[rank][other]:>{width}}" for other in ranks)
            said.append(f"  rank {rank:{width}}{marks}")
    return said


def _versions() -> List[str]:
    driver, nccl = nvidia.driver(), nvidia.nccl()
    said = f"driver {driver.text() or 'of unknown version'}" if driver else "no driver"
    return [f"{said}; " + (f"NCCL {nccl.text()} ({nccl.origin})" if nccl else "no NCCL")]


def _begin_with(way: Optional[str]) -> None:
    """Begins another life of the engine with that way."""
    basics.shutdown()
    if way is None:
        os.environ.pop("HOROVOD_GPU_OPERATIONS", None)
    else:
        os.environ["HOROVOD_GPU_OPERATIONS"] = way
    basics.init()


def _one_way(way: str, gpu: Gpu, memory: int) -> str:
    """Which way tensors went if that was left open, else how fast it is, or why it is not possible."""
    _begin_with(way)
    try:
        gpu.fill(memory, float(basics.rank() + 1), _COUNT)
        _reduce(gpu, memory, "right", _COUNT)
        size = basics.size()
        if gpu.read(memory, _COUNT) != [size * (size + 1) / 2] * _COUNT:
            return "WRONG SUMS"
        if way == "auto":
            return str(gpu_report.read()["sets"][0]["way"])
        small = _seconds(lambda: _reduce(gpu, memory, "small", _SMALL // 4), 50)
        large = _seconds(lambda: _reduce(gpu, memory, "large", _LARGE // 4), 5)
        speed = f"{large * 1e3:.2f} ms ({_LARGE / large / 1e9:.1f} GB/s)"
        return f"{_SMALL} bytes {small * 1e6:.0f} us, {_LARGE >> 20} MiB {speed}"
    except (HorovodInternalError, CudaFailed) as error:
        return "not possible: " + str(error).partition("\n")[0]


def _reduce(gpu: Gpu, memory: int, name: str, count: int) -> None:
    request = engine.request(
        constants.ALLREDUCE,
        f"gpu_check.{name}",
        constants.FLOAT32,
        (count,),
        memory,
        memory,
        op=constants.Sum,
        device=gpu.device,
        stream=gpu.stream,
    )
    engine.release(engine.run([request]))
    gpu.synchronize()


def _seconds(call: Callable[[], None], repeats: int) -> float:
    for _ in range(3):
        call()
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - started) / repeats
