# SPDX-License-Identifier: Apache-2.0
"""Training with horovod.torch beside torch's DistributedDataParallel on Gloo, and beside no communication.

    python benchmarks/torch_ddp.py                    # 2 ranks, one thread each; writes torch_ddp.{json,png}
    python benchmarks/torch_ddp.py --np 4 --rounds 10 --out /tmp/results

All contenders run in the same processes, in short turns one after the other, so that whatever else the
machine does hits all of them alike. Per turn the median step counts; the table has medians over turns.

    single      one process, the others sleep: what a step costs without company
    local       all processes at once, no communication: what a step costs with company
    horovod     hvd.DistributedOptimizer
    ddp         DistributedDataParallel, Gloo

Hidden is the share of the communication that cost no time: 1 - (horovod - local) / comm, where comm is the
time to reduce all gradients when nothing is computed.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import time
from typing import Any, Callable, Dict, List

MODELS = ("linear", "residual")
CONTENDERS = {"single": "#bbbbbb", "local": "#999999", "horovod": "#2a6fbb", "ddp": "#d08770"}


def step_times(step: Callable[[], None], steps: int) -> float:
    """Median seconds of a step."""
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def hook_microseconds(optimizer: Any, turns: int = 20) -> float:
    """Microseconds of processor time a parameter that a hook takes out of backward, submission included."""
    import torch

    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    hooks = [(p, next(iter(p._post_accumulate_grad_hooks.values()))) for p in parameters]
    for p in parameters:
        p.grad = torch.zeros_like(p)
    spent = []
    for _ in range(turns):
        start = time.thread_time()
        for p, hook in hooks:
            hook(p)
        spent.append(time.thread_time() - start)
        optimizer.synchronize()
        optimizer.zero_grad(set_to_none=False)
    return statistics.median(spent) / len(hooks) * 1e6


def worker(port: int, rounds: int, steps: int) -> Dict[str, Any]:
    """What every rank runs; rank 0's result counts."""
    import torch
    import torch.distributed as dist
    from torch_models import build

    import horovod.torch as hvd

    torch.set_num_threads(1)
    hvd.init()
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=hvd.rank(), world_size=hvd.size()
    )

    def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)

    def stepper(model: Any, optimizer: Any, x: Any, y: Any) -> Callable[[], None]:
        def step() -> None:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()

        return step

    results: Dict[str, Any] = {}
    for name in MODELS:
        model, x, y = build(name)
        local = stepper(model, sgd(model), x, y)
        distributed, x, y = build(name)
        optimizer = hvd.DistributedOptimizer(sgd(distributed), distributed.named_parameters())
        other, x, y = build(name)
        ddp = torch.nn.parallel.DistributedDataParallel(other)
        turns = {
            "single": local,
            "local": local,
            "horovod": stepper(distributed, optimizer, x, y),
            "ddp": stepper(ddp, sgd(other), x, y),
        }
        grads = [torch.zeros_like(p) for p in distributed.parameters()]

        def reduce_all(grads: List[Any] = grads) -> None:
            for handle in [hvd.allreduce_async_(g, name=f"comm.{i}") for i, g in enumerate(grads)]:
                hvd.synchronize(handle)

        turns["comm"] = reduce_all
        for contender in ("horovod", "ddp", "comm", "local"):  # warm up
            step_times(turns[contender], 2)
        times: Dict[str, List[float]] = {contender: [] for contender in turns}
        for _ in range(rounds):
            for contender, step in turns.items():
                dist.barrier()  # sleeps, where a spinning wait would disturb "single"
                if contender != "single" or hvd.rank() == 0:
                    times[contender].append(step_times(step, steps))
        dist.barrier()
        results[name] = {
            "times": times,
            "hook_us": hook_microseconds(optimizer),
            "parameters": sum(p.numel() for p in distributed.parameters()),
            "tensors": len(grads),
        }
    dist.destroy_process_group()
    small = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(80)))
    optimizer = hvd.DistributedOptimizer(sgd(small), small.named_parameters(prefix="small"))
    return {"models": results, "small_hook_us": hook_microseconds(optimizer)}


def summarise(results: Dict[str, Any]) -> Dict[str, Dict[str, float]]:
    """Medians, ratios and the hidden share, by model."""
    table = {}
    for name, result in results["models"].items():
        row = {contender: statistics.median(times) for contender, times in result["times"].items()}
        # Ratios of neighbouring turns, so that slow changes of the machine cancel.
        pairs = zip(result["times"]["ddp"], result["times"]["horovod"])
        row["over_ddp"] = statistics.median(d / h for d, h in pairs)
        row["hidden"] = min(1.0, max(0.0, 1 - (row["horovod"] - row["local"]) / row["comm"]))
        row["hook_us"] = result["hook_us"]
        table[name] = row
    return table


def plot(table: Dict[str, Dict[str, float]], path: str) -> None:
    """Steps a second, by model and contender."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(table), figsize=(4 * len(table), 3.2))
    for axis, (name, row) in zip(axes, table.items()):
        rates = [1 / row[contender] for contender in CONTENDERS]
        bars = axis.bar(list(CONTENDERS), rates, color=list(CONTENDERS.values()))
        axis.bar_label(bars, fmt="%.2f", fontsize=8)
        axis.set_title(f"{name}: {row['over_ddp']:.2f} x DDP-Gloo", fontsize=10)
        axis.set_ylabel("steps / s")
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--np", type=int, default=2, help="ranks")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender")
    parser.add_argument("--steps", type=int, default=5, help="steps in a turn")
    parser.add_argument("--out", default=".", help="folder for torch_ddp.json and torch_ddp.png")
    arguments = parser.parse_args()
    import horovod

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.pathsep.join([os.path.dirname(here), here, os.environ.get("PYTHONPATH", "")])
    env = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=path)
    results = horovod.run(worker, (port, arguments.rounds, arguments.steps), np=arguments.np, env=env)[0]
    table = summarise(results)
    print(f"{arguments.np} ranks, one thread each; steps a second")
    print(f"{'model':>10} {'single':>8} {'local':>8} {'horovod':>8} {'ddp':>8} {'hvd/ddp':>8} {'hidden':>7} "
          f"{'comm ms':>8} {'hook us':>8}")  # fmt: skip
    for name, row in table.items():
        rates = " ".join(f"{1 / row[contender]:8.2f}" for contender in CONTENDERS)
        print(f"{name:>10} {rates} {row['over_ddp']:8.2f} {row['hidden']:7.0%} {row['comm'] * 1e3:8.1f} "
              f"{row['hook_us']:8.2f}")  # fmt: skip
    print("hook us: what a parameter's hook takes out of backward, with caches as the model leaves them;")
    print(f"{results['small_hook_us']:.2f} with 160 parameters of up to 1 KiB, which stay in the caches")
    os.makedirs(arguments.out, exist_ok=True)
    with open(os.path.join(arguments.out, "torch_ddp.json"), "w") as file:
        json.dump({"ranks": arguments.np, "table": table, "raw": results}, file, indent=1)
    try:
        plot(table, os.path.join(arguments.out, "torch_ddp.png"))
    except ImportError:
        print("no plot: matplotlib is not installed")


if __name__ == "__main__":
    main()
