# SPDX-License-Identifier: Apache-2.0
"""GPU tensors: each way that horovod.torch can send them, beside torch.distributed and DDP on NCCL.

    python benchmarks/gpu.py                        # 2 and 4 ranks, all on GPU 0 (start MPS first)
    python benchmarks/gpu.py --np 2 --out /tmp/results

Ranks that share a GPU make NCCL talk over sockets, so its times say how much we add to it, not what NCCL does
between GPUs. Contenders take turns in the same processes; the table has medians over rounds, in milliseconds.
How fast a communicator of NCCL is depends on where its threads and sockets came to lie: two that torch makes
in a row differ by up to 12%. So there are several lives, in each of which both sides make theirs anew, now
one side first, now the other. "~" marks a verdict that a quarter or more of the rounds contradict.

    call      one allreduce and a wait for the GPU
    stream    an allreduce among many in the order of a stream, the host waits at the end
    step      20 x Linear(2048), batch 256, SGD;  "alone" is the same step without communication
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import socket
import statistics
import sys
import time
from typing import Any, Callable, Dict, List, Tuple

WAYS = ("direct", "NCCL", "host")
SIZES = (4, 64 << 10, 1 << 20, 16 << 20, 128 << 20)
# What is to be reached: (ranks, row, contender) -> milliseconds, or a share of another contender's time.
DIRECT_MS = {4: 0.030, 1 << 20: 0.05, 16 << 20: 0.08, 128 << 20: 0.3}
NCCL_SHARE, NCCL_EXTRA_MS, STEP_SHARE, HOOK_US = 1.05, 0.030, 1.15, 10.0


def label(size: int) -> str:
    """E.g. 64 KiB."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def timed(call: Callable[[], Any], times: int, each: bool) -> float:
    """Milliseconds a call: the median of calls that the host waits for, or the mean of calls in a stream."""
    import torch

    torch.cuda.synchronize()
    stream = torch.cuda.current_stream()
    if each:
        spent = []
        for _ in range(times):
            start = time.perf_counter()
            call()
            stream.synchronize()
            spent.append(time.perf_counter() - start)
        return statistics.median(spent) * 1e3
    start = time.perf_counter()
    for _ in range(times):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / times * 1e3


def stepper(model: Any, optimizer: Any, x: Any) -> Callable[[], None]:
    """One step of training."""

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def hook_microseconds(optimizer: Any, turns: int = 20) -> float:
    """What a hook takes out of backward for a gradient, submission included."""
    import torch

    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    hooks = [(p, next(iter(p._post_accumulate_grad_hooks.values()))) for p in parameters]
    spent = []
    for _ in range(turns):
        for p in parameters:
            p.grad = torch.zeros_like(p)
        torch.cuda.synchronize()
        start = time.thread_time()
        for p, hook in hooks:
            hook(p)
        spent.append(time.thread_time() - start)
        optimizer.synchronize()
        optimizer.zero_grad()
    with optimizer.skip_synchronize():
        optimizer.step()
    return statistics.median(spent) / len(hooks) * 1e6


def build() -> Any:
    """The model of the training step."""
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(20)]).cuda()


Times = Dict[str, List[float]]  # of each contender, one a round


def in_turn(contenders: Dict[str, Any], turn: int) -> List[str]:
    """Their names, every other time the other way round."""
    return list(contenders)[:: 1 if turn % 2 == 0 else -1]


def turns_of(life: int, rounds: int, contenders: Dict[str, Callable[[], float]]) -> Times:
    """What contenders took in rounds in which all take turns."""
    times: Times = {name: [] for name in contenders}
    for turn in range(life, life + rounds):
        for name in in_turn(contenders, turn):
            times[name].append(contenders[name]())
    return times


def summary(times: Times) -> Dict[str, Any]:
    """Each contender's median; "over NAME": quartiles of how many times NAME's time ours is in a round."""
    row: Dict[str, Any] = {name: statistics.median(values) for name, values in times.items()}
    for name in times:
        if name != "horovod":
            shares = [ours / theirs for ours, theirs in zip(times["horovod"], times[name])]
            row[f"over {name}"] = statistics.quantiles(shares, n=4, method="inclusive")
    return row


def measure_life(way: str, life: int, rounds: int) -> Tuple[Dict[str, Times], Dict[str, Any]]:
    """One way beside torch.distributed, both with communicators of this life; and the engine's report."""
    import torch
    import torch.distributed as dist

    import horovod.torch as hvd

    os.environ["HOROVOD_GPU_OPERATIONS"] = way
    hvd.init()
    group = dist.new_group(backend="nccl")
    rows: Dict[str, Times] = {}
    model = build()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1e-4), model.named_parameters()
    )
    for size in SIZES:
        ours = torch.ones(max(size // 4, 1), device="cuda")
        theirs = ours.clone()
        name = f"bench.{size}"

        def reduce(x: Any = ours, name: str = name) -> None:
            hvd.allreduce_(x, op=hvd.Sum, name=name)

        def reduce_torch(x: Any = theirs) -> None:
            dist.all_reduce(x, group=group)

        calls = {"horovod": reduce, "torch": reduce_torch}
        for contender in in_turn(calls, life):
            timed(calls[contender], 3, True)
        for kind, each in (("call", True), ("stream", False)):
            times = max(12, min(100, (64 << 20) // size))
            rows[f"{kind} {label(size)}"] = turns_of(
                life,
                rounds if size > 1 << 20 else 4 * rounds,  # they are short, and vary more
                {name: functools.partial(timed, call, times, each) for name, call in calls.items()},
            )
    x = torch.randn(256, 2048, device="cuda")
    other, alone = build(), build()
    ddp = torch.nn.parallel.DistributedDataParallel(other, process_group=group)
    steps = {
        "horovod": stepper(model, optimizer, x),
        "torch": stepper(ddp, torch.optim.SGD(other.parameters(), lr=1e-4), x),
        "alone": stepper(alone, torch.optim.SGD(alone.parameters(), lr=1e-4), x),
    }

    def measure_step(step: Callable[[], None]) -> float:
        dist.barrier()
        return timed(step, 2, False)

    for step in steps.values():
        timed(step, 2, False)
    rows["step"] = turns_of(
        life, 4 * rounds, {name: functools.partial(measure_step, step) for name, step in steps.items()}
    )
    rows["hook us"] = {"horovod": [hook_microseconds(optimizer)]}
    from horovod.common import gpu_report

    report = gpu_report.read()
    del ddp, model, other, alone, optimizer
    hvd.shutdown()
    dist.destroy_process_group(group)
    return rows, report


def measure_way(way: str, lives: int, rounds: int) -> Dict[str, Any]:
    """The rounds of all lives, summed up."""
    everything: Dict[str, Times] = {}
    report: Dict[str, Any] = {}
    for life in range(lives):
        rows, report = measure_life(way, life, rounds)
        for name, times in rows.items():
            for contender, values in times.items():
                everything.setdefault(name, {}).setdefault(contender, []).extend(values)
    return {**{name: summary(times) for name, times in everything.items()}, "report": report}


def worker(port: int, lives: int, rounds: int, ways: Tuple[str, ...]) -> Dict[str, Any]:
    """What every rank runs; rank 0's result counts."""
    os.environ["NCCL_HOSTID"] = f"rank-{os.getpid()}"  # NCCL refuses ranks that share a GPU, if it knows
    import torch
    import torch.distributed as dist

    import horovod.torch as hvd

    torch.cuda.set_device(0)
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    hvd.shutdown()
    dist.init_process_group(
        "nccl",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=size,
        device_id=torch.device("cuda:0"),
    )
    results = {}
    for way in ways:
        try:
            results[way] = measure_way(way, lives, rounds)
        except Exception as error:
            results[way] = {"error": f"{type(error).__name__}: {error}"}
            hvd.shutdown()
            break
    dist.destroy_process_group()
    return results


def verdicts(np: int, way: str, rows: Dict[str, Any]) -> List[Tuple[str, List[float], float]]:
    """(what, measured or its quartiles, goal) for each goal that this way has."""
    found: List[Tuple[str, List[float], float]] = []
    for size in SIZES:
        row = rows[f"call {label(size)}"]
        if way == "NCCL":
            if size >= 64 << 10:
                what = f"{label(size)} against torch.distributed, times"
                found.append((what, row["over torch"], NCCL_SHARE))
            elif size == 4:
                what = f"{label(size)} above torch.distributed, ms"
                found.append((what, [row["horovod"] - row["torch"]], NCCL_EXTRA_MS))
        if way == "direct" and np == 2 and size in DIRECT_MS:
            found.append((f"{label(size)}, ms", [row["horovod"]], DIRECT_MS[size]))
    if way == "NCCL":
        found.append(("step against DDP, times", rows["step"]["over torch"], 1.0))
    if way == "direct":
        what = "step against one without communication, times"
        found.append((what, rows["step"]["over alone"], STEP_SHARE))
    found.append(("hook of a gradient, us", [rows["hook us"]["horovod"]], HOOK_US))
    return found


def verdict(measured: List[float], goal: float) -> str:
    """E.g. "reached", or "~missed" where quartiles lie on both sides of the goal."""
    unsure = "~" if measured[0] <= goal < measured[-1] else ""
    return unsure + ("reached" if statistics.median(measured) <= goal else "missed" if unsure else "MISSED")


def number(value: Any) -> str:
    """A time or a share; of quartiles, the median and the middle half."""
    if isinstance(value, float):
        return f"{value:9.3f}"
    low, middle, high = value
    return f"{middle:.3f} [{low:.2f}..{high:.2f}]"


def show(np: int, results: Dict[str, Any]) -> None:
    """The tables of one run."""
    for way, rows in results.items():
        if "error" in rows:
            print(f"\n{np} ranks, {way}: {rows['error']}")
            continue
        print(f"\n{np} ranks, {way}: {rows['report']['sets'][0]['way']}")
        for name, row in rows.items():
            if name not in ("report", "hook us"):
                print(f"  {name:16}" + "".join(f"  {who} {number(value)}" for who, value in row.items()))
        for what, measured, goal in verdicts(np, way, rows):
            middle = statistics.median(measured)
            print(f"  {verdict(measured, goal):8}  {middle:8.3f}  goal {goal:6.3f}  {what}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--np", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--lives", type=int, default=6)
    parser.add_argument(
        "--rounds", type=int, default=1, help="in each life; of what is short, four times as many"
    )
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--out", help="folder for gpu.json")
    options = parser.parse_args()
    import horovod

    lo = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
    everything = {}
    for np in options.np:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        env = dict(os.environ, **lo)
        ranks = horovod.run(
            worker, (port, options.lives, options.rounds, tuple(options.ways)), np=np, env=env
        )
        everything[np] = ranks[0]
        show(np, ranks[0])
        sys.stdout.flush()
        if options.out:
            os.makedirs(options.out, exist_ok=True)
            with open(os.path.join(options.out, "gpu.json"), "w") as file:
                json.dump(everything, file, indent=1)


if __name__ == "__main__":
    main()
