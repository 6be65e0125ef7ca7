# SPDX-License-Identifier: Apache-2.0
"""Complaints of the original's users, by the number of their issue there, that hold no longer.

Most are answered by a behaviour that has a test of its own; these names lead there.
"""

from __future__ import annotations

from typing import Any

import pytest
import test_adasum
import test_functions
import test_optimizer
import test_training
import torch
from tests_support import run_world, shared_world
from torch_training import assert_same, batches, loss_of, net, plain_step, sgd, shards

pytestmark = pytest.mark.filterwarnings("ignore")


def on_two(case: Any, *args: Any) -> None:
    shared_world(2).run(case, *args, timeout=300)


# Mixed precision and clipping -------------------------------------------------------------------


def test_issue_1089():
    """Mixed precision needed a special dance around synchronize()."""
    on_two(test_training.grad_scaler)


def test_issue_2175():
    """NaN on one rank: now the scaler skips on all of them."""
    on_two(test_training.grad_scaler)


def test_issue_1099():
    """Clipping needed synchronize() and skip_synchronize()."""
    on_two(test_training.clipping)


def clip_before_and_after() -> None:
    """Local gradients can be clipped before they are reduced, and the reduced ones after."""
    import horovod.torch as hvd

    model, parts = net(), [net() for _ in range(hvd.size())]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for index, (x, y) in enumerate(shards(hvd.rank(), hvd.size())):
        optimizer.zero_grad()
        with optimizer.no_sync():
            loss_of(model, x, y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        with optimizer.skip_synchronize():
            optimizer.step()
        for rank, part in enumerate(parts):
            part.zero_grad()
            loss_of(part, *shards(rank, hvd.size())[index]).backward()
            torch.nn.utils.clip_grad_norm_(part.parameters(), 0.1)
        with torch.no_grad():
            for group in zip(*(part.parameters() for part in parts)):
                mean = sum(p.grad for p in group) / len(group)
                for p in group:
                    p.grad = mean.clone()
        for part in parts:
            torch.nn.utils.clip_grad_norm_(part.parameters(), 0.05)
            torch.optim.SGD(part.parameters(), lr=0.1).step()
    assert_same(model, parts[0])


def test_issue_1346():
    on_two(clip_before_and_after)


# Checkpoints ------------------------------------------------------------------------------------


def test_issue_526():
    """Learning rates were not broadcast."""
    on_two(test_functions.training_goes_on)


def test_issue_1774():
    """After loading a checkpoint on rank 0 the ranks drifted apart."""
    on_two(test_functions.training_goes_on)


def test_pytorch_issue_58127():
    """A scheduler that refers to a distributed optimizer could not be pickled."""
    on_two(test_optimizer.pickles)


# Accumulation -----------------------------------------------------------------------------------


def test_issue_2466():
    """A short last group of backward passes was an error."""
    on_two(test_training.accumulation)


def test_issue_2497():
    """More passes than backward_passes_per_step were an error."""
    on_two(test_training.several_backwards)


def test_issue_1103():
    """Hold gradients back until they are wanted."""
    on_two(test_training.no_sync)


# Several optimizers -----------------------------------------------------------------------------


def test_issue_784():
    """Names of two unnamed optimizers clashed."""
    on_two(test_training.gan)


def two_of_the_same() -> None:
    """Two models with the same parameter names, stepped together and apart."""
    import horovod.torch as hvd

    models, references = [net(1), net(2)], [net(1), net(2)]
    optimizers = [hvd.DistributedOptimizer(sgd(m.parameters()), m.named_parameters()) for m in models]
    plains = [sgd(m.parameters()) for m in references]
    for (x, y), (whole_x, whole_y) in zip(shards(hvd.rank(), hvd.size()), batches()):
        for optimizer in (*optimizers, *plains):
            optimizer.zero_grad()
        (loss_of(models[0], x, y) + loss_of(models[1], x, y)).backward()  # both in flight at once
        (loss_of(references[0], whole_x, whole_y) + loss_of(references[1], whole_x, whole_y)).backward()
        for optimizer in (*optimizers, *plains):
            optimizer.step()
    for model, reference in zip(models, references):
        assert_same(model, reference)


def test_issue_2559():
    on_two(two_of_the_same)


# Schedulers -------------------------------------------------------------------------------------


def test_issue_3329():
    """A scheduler made for the optimizer that was wrapped later had no effect."""
    on_two(test_optimizer.schedulers)


# Others -----------------------------------------------------------------------------------------


def local_sums_first() -> None:
    """Rows that repeat within a rank are added before they travel."""
    import horovod.torch as hvd
    from horovod.torch import _sparse

    sent = []
    original = _sparse.Operation

    class Watched(original):
        def __init__(self, verb, tensors, *args, **kwargs):
            sent.append(tensors[0].shape[0])
            super().__init__(verb, tensors, *args, **kwargs)

    _sparse.Operation = Watched
    try:
        many = torch.sparse_coo_tensor(torch.zeros(1, 50, dtype=torch.int64), torch.ones(50, 2), (4, 2))
        total = hvd.allreduce(many, op=hvd.Sum)
    finally:
        _sparse.Operation = original
    assert sent == [1, 1] and total.to_dense()[0].tolist() == [50.0 * hvd.size()] * 2


def test_issue_3328():
    on_two(local_sums_first)


def bfloat16_training() -> None:
    import horovod.torch as hvd

    model = net().to(torch.bfloat16)
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    for x, y in shards(hvd.rank(), hvd.size()):
        plain_step(model, optimizer, x.to(torch.bfloat16), y.to(torch.bfloat16))
    weights = hvd.allgather(model[0].weight.detach()[None])
    assert weights.dtype is torch.bfloat16 and torch.equal(weights[0], weights[1])


def test_issue_4047():
    """bfloat16 was not supported."""
    on_two(bfloat16_training)


def test_issue_3400():
    """Adasum failed on three ranks."""
    shared_world(3).run(test_adasum.operation, timeout=300)


def large_object() -> None:
    import numpy

    import horovod.torch as hvd

    hvd.init()
    size = (1 << 31) + 17
    payload = numpy.ones(size, dtype=numpy.uint8) if hvd.rank() == 0 else None
    got = hvd.broadcast_object(payload, root_rank=0, name="large")
    assert got.nbytes == size and got[-1] == 1


@pytest.mark.slow
def test_issue_2519():
    """Objects over 2 GiB failed."""
    run_world(large_object, 2, timeout=300)
