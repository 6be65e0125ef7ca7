# SPDX-License-Identifier: Apache-2.0
"""Adasum: the operation against the pairwise rule, and the optimizer that combines steps."""

from __future__ import annotations

from typing import List

import pytest
import torch
from tests_support import shared_world
from torch_training import BATCH, assert_same, batches, loss_of, mine, net


def pair(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """What is orthogonal adds up, what is parallel is averaged."""
    dot, aa, bb = (a * b).sum(), (a * a).sum(), (b * b).sum()
    return a * (1 - dot / (2 * aa) if aa else 1) + b * (1 - dot / (2 * bb) if bb else 1)


def combine(tensors: List[torch.Tensor]) -> torch.Tensor:
    """A binary tree, neighbours first; an odd one out waits for the next round."""
    while len(tensors) > 1:
        odd = tensors[len(tensors) // 2 * 2 :]
        tensors = [pair(a, b) for a, b in zip(tensors[::2], tensors[1::2])] + odd
    return tensors[0]


def operation() -> None:
    import horovod.torch as hvd

    n, r = hvd.size(), hvd.rank()
    same = torch.arange(1.0, 5.0).double()
    torch.testing.assert_close(hvd.allreduce(same, op=hvd.Adasum), same)  # parallel: the average
    apart = torch.zeros(n, dtype=torch.float64)
    apart[r] = r + 1.0
    wanted = torch.arange(1.0, n + 1).double()
    torch.testing.assert_close(hvd.allreduce(apart, op=hvd.Adasum), wanted)  # orthogonal: the sum
    zero = torch.zeros(3, dtype=torch.float64) if r else torch.ones(3, dtype=torch.float64)
    torch.testing.assert_close(hvd.allreduce(zero, op=hvd.Adasum), torch.ones(3, dtype=torch.float64))
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        inputs = [torch.randn(50, generator=torch.Generator().manual_seed(k)).to(dtype) for k in range(n)]
        got = hvd.allreduce(inputs[r], op=hvd.Adasum)
        wanted = combine([t.double() for t in inputs])
        tolerance = {torch.float64: 1e-9, torch.float32: 1e-4}.get(dtype, 5e-2)
        torch.testing.assert_close(got.double(), wanted, rtol=tolerance, atol=tolerance)
        for output in hvd.grouped_allreduce([inputs[r], inputs[r] * 2], op=hvd.Adasum):
            assert output.dtype is dtype


@pytest.mark.parametrize("size", [2, 3, 4])
def test_operation(size):
    shared_world(size).run(operation, timeout=300)


def on_a_set() -> None:
    import horovod.torch as hvd

    pair_set = hvd.add_process_set([0, 2])
    if pair_set.included():
        x = torch.eye(3)[hvd.rank()]
        assert hvd.allreduce(x, op=hvd.Adasum, process_set=pair_set).tolist() == [1.0, 0.0, 1.0]
    hvd.remove_process_set(pair_set)


def test_on_a_process_set():
    shared_world(3).run(on_a_set, timeout=300)


def optimizer() -> None:
    """Every rank steps by itself; the differences the steps make are combined."""
    import horovod.torch as hvd

    n, r = hvd.size(), hvd.rank()
    model = net()
    make = lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)  # noqa: E731
    wrapped = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), op=hvd.Adasum)
    models = [net() for _ in range(n)]
    plains = [make(m.parameters()) for m in models]
    for x, y in batches(rows=BATCH):
        wrapped.zero_grad()
        loss_of(model, mine(x, r, n), mine(y, r, n)).backward()
        wrapped.step()
        starts = [p.detach().clone() for p in models[0].parameters()]
        for k, (m, o) in enumerate(zip(models, plains)):
            o.zero_grad()
            loss_of(m, mine(x, k, n), mine(y, k, n)).backward()
            o.step()
        with torch.no_grad():
            for i, start in enumerate(starts):
                delta = combine([list(m.parameters())[i] - start for m in models])
                for m in models:
                    list(m.parameters())[i].copy_(start + delta)
    assert_same(model, models[0])
    wrapped.synchronize()
    with pytest.raises(AssertionError, match="Skipping synchronization is not supported"):
        with wrapped.skip_synchronize():
            pass


@pytest.mark.parametrize("size", [2, 3])
def test_optimizer(size):
    shared_world(size).run(optimizer, timeout=300)
