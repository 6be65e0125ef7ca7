# SPDX-License-Identifier: Apache-2.0
"""Small trainings for the PyTorch tests, on shards and on whole batches."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

import torch

FEATURES, CLASSES, BATCH, STEPS = 6, 3, 12, 4


def net(seed: int = 0) -> torch.nn.Sequential:
    """The same small network for the same seed."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 8), torch.nn.Tanh(), torch.nn.Linear(8, CLASSES)
    ).double()


def batches(steps: int = STEPS, rows: int = BATCH, seed: int = 1) -> List[Tuple[torch.Tensor, torch.Tensor]]:
    """The whole batches, the same on every rank."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(rows, FEATURES, generator=generator, dtype=torch.float64),
            torch.randn(rows, CLASSES, generator=generator, dtype=torch.float64),
        )
        for _ in range(steps)
    ]


def mine(whole: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    """This rank's part of a batch."""
    return whole.chunk(size)[rank]


def shards(rank: int, size: int, **kwargs: Any) -> List[Tuple[torch.Tensor, torch.Tensor]]:
    """This rank's part of all batches."""
    return [(mine(x, rank, size), mine(y, rank, size)) for x, y in batches(**kwargs)]


def loss_of(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean squared error."""
    return ((model(x) - y) ** 2).mean()


def plain_step(model: torch.nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """One step of the plainest loop."""
    optimizer.zero_grad()
    loss = loss_of(model, x, y)
    loss.backward()
    optimizer.step()
    return loss


def trained(make_optimizer: Callable[..., Any], **kwargs: Any) -> torch.nn.Module:
    """The reference: one process, whole batches."""
    model = net()
    optimizer = make_optimizer(model.parameters())
    for x, y in batches(**kwargs):
        plain_step(model, optimizer, x, y)
    return model


def assert_same(left: torch.nn.Module, right: torch.nn.Module, tolerance: float = 1e-9) -> None:
    """Both have the same parameters and buffers."""
    expected = right.state_dict()
    for name, value in left.state_dict().items():
        torch.testing.assert_close(
            value, expected[name], rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


def sgd(params: Any) -> torch.optim.Optimizer:
    """SGD with momentum and weight decay."""
    return torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01)


def distributed(hvd: Any, model: torch.nn.Module, make: Any = sgd, **kwargs: Any) -> Any:
    """The wrapped optimizer of a model."""
    return hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), **kwargs)


def run_plain(make: Any = sgd, **kwargs: Any) -> torch.nn.Module:
    """The plain loop on this rank's shards."""
    import horovod.torch as hvd

    model = net()
    optimizer = distributed(hvd, model, make, **kwargs)
    for x, y in shards(hvd.rank(), hvd.size()):
        plain_step(model, optimizer, x, y)
    return model
