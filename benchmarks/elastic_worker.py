# SPDX-License-Identifier: Apache-2.0
"""The training that benchmarks/elastic.py hurts: a small model, under horovodrun or torchrun.

elastic_worker.py hvd|ddp FOLDER     prints a line a step: {"event": "step", "rank", "size", "time", ...}
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Callable

import torch

PAUSE = 0.02  # what a step costs besides


def born() -> float:
    """When this process was started, on the wall clock."""
    with open("/proc/self/stat", encoding="utf-8") as stat, open("/proc/uptime", encoding="utf-8") as uptime:
        ticks = int(stat.read().rsplit(")", 1)[1].split()[19])
        return time.time() - float(uptime.read().split()[0]) + ticks / os.sysconf("SC_CLK_TCK")


def say(**values: Any) -> None:
    """Prints a line at once."""
    os.write(1, (json.dumps(dict(values, pid=os.getpid(), time=time.time())) + "\n").encode())


def net() -> torch.nn.Module:
    """The model."""
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))


def one_step(model: Callable[[torch.Tensor], torch.Tensor], optimizer: torch.optim.Optimizer) -> None:
    """Forward, backward, update."""
    optimizer.zero_grad()
    torch.autograd.backward(model(torch.ones(8, 64)).square().mean())
    optimizer.step()
    time.sleep(PAUSE)


def with_horovod(folder: str) -> None:
    """Survivors go on in their processes."""
    import horovod.torch as hvd

    start = born()
    model = net()
    plain = torch.optim.SGD(model.parameters(), lr=0.01)
    one_step(model, plain)  # PyTorch imports much of itself here; the others train until hvd.init() is called
    ready = time.time()
    hvd.init()
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())

    @hvd.elastic.run
    def train(state: Any) -> None:
        while not hvd.broadcast_object(os.path.exists(f"{folder}/enough"), name="enough"):
            one_step(model, optimizer)
            state.step += 1
            say(event="step", step=state.step, rank=hvd.rank(), size=hvd.size(), startup=ready - start)
            state.commit()

    train(hvd.elastic.TorchState(model, optimizer, step=0))


def with_ddp(folder: str) -> None:
    """Every worker is started again, and loads what rank 0 wrote last."""
    import torch.distributed as dist

    start = born()
    ready = time.time()
    # Each attempt has a file of its own: in the agent's store Gloo finds addresses of the last attempt.
    meet = f"file://{folder}/attempt{os.environ['TORCHELASTIC_RESTART_COUNT']}"
    rank, size, path = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), f"{folder}/checkpoint"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=size)
    model = net()
    step = 0
    if os.path.exists(path):
        saved = torch.load(path)
        step = saved["step"]
        model.load_state_dict(saved["model"])
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    enough = torch.zeros(1)
    while not enough.item():
        one_step(wrapped, optimizer)
        step += 1
        say(event="step", step=step, rank=rank, size=size, startup=ready - start)
        if rank == 0:
            torch.save({"step": step, "model": model.state_dict()}, f"{path}.new")
            os.replace(f"{path}.new", path)
        enough[0] = float(os.path.exists(f"{folder}/enough"))
        dist.broadcast(enough, 0)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"hvd": with_horovod, "ddp": with_ddp}[sys.argv[1]](sys.argv[2])
