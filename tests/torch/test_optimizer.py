# SPDX-License-Identifier: Apache-2.0
"""The wrapper itself: arguments, what it shares with the wrapped optimizer, copies and pickles."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from tests_support import shared_world
from torch_training import assert_same, batches, loss_of, net, plain_step, sgd, shards


def distributed(hvd: Any, model: torch.nn.Module, make: Any = sgd, **kwargs: Any) -> Any:
    return hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), **kwargs)


def argument_errors() -> None:
    import horovod.torch as hvd

    model = net()

    def wrap(**kwargs):
        return hvd.DistributedOptimizer(sgd(model.parameters()), **kwargs)

    named = list(model.named_parameters())
    for text, kwargs in {
        "sequence of tuples": dict(named_parameters=model.parameters()),
        "must be unique. Found duplicates: 0.weight": dict(named_parameters=named + named[:1]),
        "were not named. Python object ids": dict(named_parameters=named[:-1]),
        "backward_passes_per_step must be > 0": dict(backward_passes_per_step=0),
        "gradient_predivide_factor not supported with op != Average": dict(
            gradient_predivide_factor=2.0, op=hvd.Sum
        ),
        "groups should be a non-negative integer": dict(groups=0),
        "groups must consist of torch.Tensor": dict(groups=[["x"]]),
        "groups must consist of torch.Tensor.": dict(groups=[named[0][1], named[1][1]]),
        "groups must consist of torch.": dict(groups=[1]),
        "A parameter can only appear once in groups": dict(groups=[[named[0][1]], [named[0][1]]]),
    }.items():
        with pytest.raises(ValueError, match=text):
            wrap(**kwargs)
    optimizer = wrap()
    assert optimizer._parameter_names[named[1][1]] == "allreduce.noname.0.1"
    assert wrap(named_parameters=named + [("extra", torch.nn.Parameter(torch.ones(1)))]) is not None
    assert optimizer.backward_passes_per_step == 1 and optimizer.op == hvd.Average
    optimizer.set_backward_passes_per_step(3)
    assert optimizer.backward_passes_per_step == 3
    assert optimizer.process_set is hvd.global_process_set
    assert type(optimizer).find_duplicates([1, 2, 1]) == {1}


def is_the_optimizer() -> None:
    import horovod.torch as hvd

    model = net()
    plain = sgd(model.parameters())
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    assert isinstance(optimizer, torch.optim.SGD) and isinstance(optimizer, torch.optim.Optimizer)
    assert type(optimizer).__name__ == "SGD"
    assert optimizer.__module__ == hvd.DistributedOptimizer.__module__ == "horovod.torch.optimizer"
    assert optimizer.param_groups is plain.param_groups and optimizer.state is plain.state
    assert optimizer.defaults is plain.defaults
    assert repr(optimizer) == repr(plain)
    for x, y in shards(hvd.rank(), hvd.size()):
        plain_step(model, optimizer, x, y)
    assert plain.state and optimizer.state_dict().keys() == plain.state_dict().keys()
    saved = copy.deepcopy(plain.state_dict())
    plain.load_state_dict(saved)  # replaces state and param_groups: both still agree
    assert optimizer.state is plain.state and optimizer.param_groups is plain.param_groups
    optimizer.load_state_dict(saved)
    assert optimizer.state is plain.state and optimizer.param_groups is plain.param_groups
    seen = []
    optimizer.register_step_post_hook(lambda *_: seen.append(1))
    optimizer.step()
    assert seen == [1]
    optimizer.param_groups[0]["lr"] = 0.5
    assert plain.param_groups[0]["lr"] == 0.5


def schedulers() -> None:
    """A scheduler on either of the two: the same learning rates, and no warnings about the order."""
    import warnings

    import horovod.torch as hvd

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for on_wrapper in (False, True):
            model, reference = net(), net()
            plain = sgd(model.parameters())
            if not on_wrapper:
                scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, gamma=0.5)
            optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
            if on_wrapper:
                scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
            other = sgd(reference.parameters())
            other_scheduler = torch.optim.lr_scheduler.StepLR(other, 1, gamma=0.5)
            for (x, y), (whole_x, whole_y) in zip(shards(hvd.rank(), hvd.size()), batches()):
                plain_step(model, optimizer, x, y)
                scheduler.step()
                plain_step(reference, other, whole_x, whole_y)
                other_scheduler.step()
            assert optimizer.param_groups[0]["lr"] == other.param_groups[0]["lr"]
            assert_same(model, reference)


def pickles() -> None:
    """torch.save of model and optimizer together; training goes on from the copy."""
    import horovod.torch as hvd

    model, reference = net(), net()
    optimizer, plain = distributed(hvd, model, groups=2), sgd(reference.parameters())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=100)
    assert pickle.loads(pickle.dumps(scheduler.state_dict()))["total_steps"] == 100
    scheduler = torch.optim.lr_scheduler.OneCycleLR(plain, 0.5, total_steps=100)
    copies = 0
    for (x, y), (whole_x, whole_y) in zip(shards(hvd.rank(), hvd.size()), batches()):
        plain_step(model, optimizer, x, y)
        plain_step(reference, plain, whole_x, whole_y)
        if copies == 0:
            model, optimizer = pickle.loads(pickle.dumps((model, optimizer)))
        elif copies == 1:
            model, optimizer = copy.deepcopy((model, optimizer))
        elif copies == 2:
            buffer = io.BytesIO()
            torch.save((model, optimizer), buffer)
            buffer.seek(0)
            model, optimizer = torch.load(buffer, weights_only=False)
        copies += 1
        assert type(optimizer).__name__ == "SGD" and isinstance(optimizer, torch.optim.SGD)
        assert pickle.loads(pickle.dumps(type(optimizer))) is type(optimizer)
    assert_same(model, reference)


def only_one_rank_copies() -> None:
    """Copies that never train, on one rank only, do not disturb the names of optimizers made later."""
    import horovod.torch as hvd

    model, reference = net(), net()
    optimizer = distributed(hvd, model)
    if hvd.rank() == 0:
        kept = [copy.deepcopy(optimizer) for _ in range(3)]
        assert len(kept) == 3
    optimizer = distributed(hvd, model)
    plain = sgd(reference.parameters())
    for (x, y), (whole_x, whole_y) in zip(shards(hvd.rank(), hvd.size()), batches()):
        plain_step(model, optimizer, x, y)
        plain_step(reference, plain, whole_x, whole_y)
    assert_same(model, reference)


def subclasses() -> None:
    """Optimizers of one's own, with methods and attributes of their own."""
    import horovod.torch as hvd

    class Scaled(torch.optim.SGD):
        def __init__(self, params):
            super().__init__(params, lr=0.1)
            self.factor = 1.0

        def raise_factor(self):
            self.factor *= 2
            return self.factor

        def step(self, closure=None, extra=0):
            self.last_extra = extra
            for group in self.param_groups:
                group["lr"] = 0.1 * self.factor
            return super().step(closure)

    model = net()
    plain = Scaled(model.parameters())
    optimizer = hvd.DistributedOptimizer(plain)
    assert optimizer.raise_factor() == 2.0 and plain.factor == 2.0
    optimizer.factor = 3.0
    assert plain.factor == 3.0
    optimizer.step(extra=7)
    assert plain.last_extra == 7 and plain.param_groups[0]["lr"] == pytest.approx(0.3)
    del optimizer.last_extra
    assert not hasattr(plain, "last_extra")


def works_without_others() -> None:
    """A world of one, or a set of one: a plain optimizer."""
    import horovod.torch as hvd

    alone = hvd.global_process_set if hvd.size() == 1 else hvd.add_process_set([hvd.size() - 1])
    model, reference = net(), net()
    optimizer, plain = distributed(hvd, model, process_set=alone), sgd(reference.parameters())
    for x, y in batches():
        plain_step(model, optimizer, x, y)
        plain_step(reference, plain, x, y)
    assert_same(model, reference)
    if hvd.size() > 1:
        hvd.remove_process_set(alone)


def hooks_end_with_the_optimizer() -> None:
    """Dropping the optimizer frees it, and the model trains on as a plain one."""
    import gc
    import weakref

    import horovod.torch as hvd

    model = net()
    optimizer = distributed(hvd, model)
    reducer = weakref.ref(optimizer._hvd.reducer)
    plain_step(model, optimizer, *shards(hvd.rank(), hvd.size())[0])
    del optimizer
    gc.collect()
    assert reducer() is None
    if hvd.rank() == 0:  # nobody waits for anybody any more
        model(batches()[0][0]).sum().backward()


def gradients_sent_by_hand() -> None:
    """Libraries send gradients through a private name, and tell `step` to leave them alone."""
    import horovod.torch as hvd

    model, reference = net(), net()
    optimizer, plain = distributed(hvd, model), sgd(reference.parameters())
    for (x, y), (own_x, own_y) in zip(batches(), shards(hvd.rank(), hvd.size())):
        optimizer.zero_grad()
        with optimizer.no_sync():
            loss_of(model, own_x, own_y).backward()
        sent = [optimizer._allreduce_grad_async(p) for p in model.parameters()]
        for p, (handle, context) in zip(model.parameters(), sent):
            assert hvd.synchronize(handle) is p.grad and context is None
        assert optimizer._should_synchronize is True
        optimizer._should_synchronize = False
        optimizer.step()
        optimizer._should_synchronize = True
        plain_step(reference, plain, x, y)
    assert_same(model, reference)
    with optimizer.skip_synchronize():
        assert optimizer._should_synchronize is False
    with pytest.raises(KeyError, match="not reduced by this optimizer"):
        optimizer._allreduce_grad_async(torch.nn.Parameter(torch.ones(1)))


CASES = [
    argument_errors, is_the_optimizer, schedulers, pickles, only_one_rank_copies, subclasses,
    works_without_others, hooks_end_with_the_optimizer, gradients_sent_by_hand,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_optimizer(case):
    shared_world(2).run(case, timeout=300)


def test_in_a_world_of_one():
    shared_world(1).run(works_without_others, timeout=300)
