# SPDX-License-Identifier: Apache-2.0
"""torch without communication: what a training step costs by itself, alone or beside others of its kind."""

from __future__ import annotations

import os
from typing import Any, Callable

from benchmarks.contenders.adapter import Adapter


def sgd(module: Any) -> Any:
    """The optimizer of all trainings."""
    import torch

    return torch.optim.SGD(module.parameters(), lr=0.001, momentum=0.9)


def stepper(module: Any, optimizer: Any, x: Any, y: Any) -> Callable[[], None]:
    """One step on one batch."""
    import torch

    def step() -> None:
        optimizer.zero_grad()
        loss: Any = torch.nn.functional.mse_loss(module(x), y)
        loss.backward()
        optimizer.step()

    return step


class Alone(Adapter):
    """Processes that know nothing of each other."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        self.torch = torch
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    def buffer(self, count: int) -> Any:
        return self.torch.full((count,), float(self.size))

    def allreduce(self, data: Any, name: str = "bench") -> Any:
        return data

    def barrier(self) -> None:
        pass

    def trainer(self, model: str) -> Callable[[], None]:
        from benchmarks.contenders.torch_models import build

        module, x, y = build(model)
        return stepper(module, sgd(module), x, y)
