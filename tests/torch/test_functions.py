# SPDX-License-Identifier: Apache-2.0
"""Starting from the same model, optimizer and objects."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests_support import shared_world
from torch_training import assert_same, batches, net, plain_step, shards


def parameters() -> None:
    import horovod.torch as hvd

    def model(seed):
        torch.manual_seed(seed)
        return torch.nn.Sequential(
            torch.nn.Conv2d(2, 3, 2), torch.nn.BatchNorm2d(3), torch.nn.Flatten(), torch.nn.Linear(3, 2)
        )

    wanted = model(0).state_dict()
    mine = model(hvd.rank())
    if hvd.rank() == 1:
        mine.to(memory_format=torch.channels_last)
    mine[1].running_mean.fill_(float(hvd.rank()))
    mine[1].num_batches_tracked.fill_(hvd.rank())
    hvd.broadcast_parameters(mine.state_dict(), root_rank=0)
    for name, value in mine.state_dict().items():
        torch.testing.assert_close(value, wanted[name])
    mine = model(hvd.rank())
    hvd.broadcast_parameters(list(mine.named_parameters()), root_rank=1)
    wanted = dict(model(1).named_parameters())
    for name, value in mine.named_parameters():
        torch.testing.assert_close(value, wanted[name])
    hvd.broadcast_parameters(list(mine.parameters()), root_rank=0)
    with pytest.raises(ValueError, match="invalid params of type: <class 'generator'>"):
        hvd.broadcast_parameters(mine.named_parameters(), root_rank=0)
    with pytest.raises(ValueError, match="not a tensor"):
        hvd.broadcast_parameters({"x": 3}, root_rank=0)


def every_optimizer(params: Any) -> dict:
    """One of each kind in torch.optim, with options where they change the state."""
    o = torch.optim
    made = {
        "SGD": lambda p: o.SGD(p, lr=0.1),
        "SGD momentum": lambda p: o.SGD(p, lr=0.1, momentum=0.9),
        "Adam": lambda p: o.Adam(p, lr=0.1, amsgrad=True),
        "Adam tensor lr": lambda p: o.Adam(p, lr=torch.tensor(0.1), foreach=False),
        "LBFGS": lambda p: o.LBFGS(p, lr=0.1),
        "groups": lambda p: o.SGD([{"params": [q], "lr": 0.1 * (i + 1)} for i, q in enumerate(p)], lr=0.1),
    }
    for name in ("AdamW", "Adamax", "NAdam", "RAdam", "Adadelta", "Adagrad", "ASGD", "RMSprop", "Rprop"):
        made[name] = lambda p, name=name: getattr(o, name)(p, lr=0.1)
    return made


def trees_equal(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(trees_equal(v, right[k]) for k, v in left.items())
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(trees_equal, left, right))
    return left == right


def optimizer_state() -> None:
    """The root has trained, the others have not, or differently: afterwards all have the root's state."""
    import horovod.torch as hvd

    for name in every_optimizer(None):
        for others_trained in (False, True):
            for wrapped in (False, True):
                model = net()
                optimizer = every_optimizer(None)[name](list(model.parameters()))
                inner = optimizer
                if hvd.rank() == 0 or others_trained:
                    for x, y in batches(steps=2 if hvd.rank() == 0 else 1):

                        def closure(x=x, y=y, model=model, optimizer=optimizer):
                            optimizer.zero_grad()
                            loss = torch.nn.functional.mse_loss(model(x), y)
                            loss.backward()
                            return loss

                        optimizer.step(closure)
                if hvd.rank() == 0:
                    for group in inner.param_groups:
                        group["lr"] *= 0.5
                        group["a new option"] = {"deep": [1, torch.ones(2)]}
                if wrapped:
                    optimizer = hvd.DistributedOptimizer(optimizer)
                hvd.broadcast_optimizer_state(optimizer, root_rank=0)
                states = hvd.allgather_object(inner.state_dict())
                assert trees_equal(states[0], states[1]), (name, others_trained, wrapped)
                assert inner.param_groups[0]["params"][0] is next(model.parameters())


def training_goes_on() -> None:
    """After loading a checkpoint on rank 0 only, the ranks train on together."""
    import horovod.torch as hvd

    model = net(seed=hvd.rank())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    if hvd.rank() == 0:
        for x, y in batches():
            plain_step(model, optimizer, x, y)
        optimizer.param_groups[0]["lr"] = 0.123
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for x, y in batches():
        plain_step(model, optimizer, x, y)
    assert optimizer.param_groups[0]["lr"] == 0.123
    weights = hvd.allgather(model[0].weight.detach()[None])
    assert torch.equal(weights[0], weights[1])


def fresh_optimizers() -> None:
    """As scripts may expect, an optimizer without state leaves gradients of zeros; and trains as ever."""
    import horovod.torch as hvd

    model = torch.nn.Sequential(
        torch.nn.Embedding(5, 3), torch.nn.Embedding(5, 3, sparse=True), torch.nn.Linear(3, 2)
    )
    model[2].bias.requires_grad_(False)
    model[2].weight.grad = torch.ones(2, 3)
    before = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=model)
    assert not optimizer.state
    assert model[0].weight.grad.eq(0).all() and not model[0].weight.grad.is_sparse
    assert model[1].weight.grad.is_sparse and model[1].weight.grad.to_dense().eq(0).all()
    assert model[2].weight.grad.eq(1).all() and model[2].bias.grad is None
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before))

    model, reference = net(), net()
    plain = torch.optim.Adam(reference.parameters(), weight_decay=0.1)
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(model.parameters(), weight_decay=0.1))
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for (x, y), (own_x, own_y) in zip(batches(), shards(hvd.rank(), hvd.size())):
        plain_step(reference, plain, x, y)
        plain_step(model, optimizer, own_x, own_y)
    assert_same(model, reference)


def objects() -> None:
    import horovod.torch as hvd

    tree = {"list": [1, 2.5, "x", None], "tensor": torch.arange(5), "lambda": (lambda v: v + 1)}
    got = hvd.broadcast_object(tree if hvd.rank() == 0 else None, root_rank=0, name="tree")
    assert got["list"] == tree["list"] and got["lambda"](1) == 2
    assert torch.equal(got["tensor"], tree["tensor"])
    assert hvd.allgather_object({"rank": hvd.rank(), "pad": "x" * hvd.rank()}) == [
        {"rank": k, "pad": "x" * k} for k in range(hvd.size())
    ]


@pytest.mark.parametrize("case", [parameters, optimizer_state, training_goes_on, fresh_optimizers, objects])
@pytest.mark.filterwarnings("ignore")
def test_functions(case):
    shared_world(2).run(case, timeout=300)
