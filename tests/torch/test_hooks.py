# SPDX-License-Identifier: Apache-2.0
"""Hooks of gradients, C's and Python's: the usual case, and what sends them the other way."""

from __future__ import annotations

import gc
import signal
import threading
import weakref
from typing import Any, Callable

import numpy as np
import pytest
import torch
from engine_calls import WAYS, calls_by
from tests_support import shared_world
from torch_training import assert_same, net, plain_step, sgd, shards, trained

IN_C = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")


def hook_of(param: torch.Tensor) -> Callable[[torch.Tensor], None]:
    """What torch calls when the gradient is there."""
    hooks: Any = param._post_accumulate_grad_hooks
    return next(iter(hooks.values()))


def distributed(model: torch.nn.Module, **kwargs: Any) -> Any:
    import horovod.torch as hvd

    return hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), **kwargs)


def usual_case(way: str) -> None:
    """Where there is a hook in C, the one in Python has nothing to do, and nor have the slots."""
    import horovod.torch as hvd
    from horovod.torch import _reducer

    asked = []
    original = _reducer.GradientReducer.ready
    with calls_by(way):
        model = net()
        optimizer = distributed(model)
        data = shards(hvd.rank(), hvd.size())
        plain_step(model, optimizer, *data[0])  # binds it to the engine

        def ready(self: Any, slot: Any, param: torch.Tensor) -> None:
            asked.append(slot.name)
            original(self, slot, param)

        _reducer.GradientReducer.ready = ready
        try:
            for x, y in data[1:]:
                plain_step(model, optimizer, x, y)
        finally:
            _reducer.GradientReducer.ready = original
        assert asked == []
        in_c = type(hook_of(next(model.parameters()))) is type(len)
        assert in_c == (IN_C and way == "native")
    assert_same(model, trained(sgd))


def unusual_gradients(way: str) -> None:
    """Transposed, strided, sparse, empty, of many dimensions: all are averaged, whoever sees to them."""
    import horovod.torch as hvd

    n, r = hvd.size(), hvd.rank()
    mean = sum(range(1, n + 1)) / n
    with calls_by(way):
        grads = {
            "plain": lambda: torch.full((4, 3), r + 1.0),
            "transposed": lambda: torch.full((3, 4), r + 1.0).t(),
            "strided": lambda: torch.full((4, 6), r + 1.0)[:, ::2],
            "sparse": lambda: torch.full((4, 3), r + 1.0).to_sparse(),
        }
        for turn in range(2):
            for name, make in grads.items():
                param = torch.nn.Parameter(torch.zeros(4, 3))
                optimizer = hvd.DistributedOptimizer(
                    torch.optim.SGD([param], lr=1.0), [(f"{way}.{name}.{turn}", param)], sparse_as_dense=True
                )
                for _ in range(2):
                    param.grad = make()
                    hook_of(param)(param)
                    optimizer.synchronize()
                    grad = param.grad.to_dense() if param.grad.is_sparse else param.grad
                    assert torch.equal(grad, torch.full((4, 3), mean)), name
        empty = torch.nn.Parameter(torch.zeros(0, 3))
        scalar = torch.nn.Parameter(torch.tensor(0.0))
        deep = torch.nn.Parameter(torch.zeros([1] * 12))  # more dimensions than C keeps
        params = [(f"{way}.empty", empty), (f"{way}.scalar", scalar), (f"{way}.deep", deep)]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p for _, p in params], lr=1.0), params)
        for _ in range(2):
            optimizer.zero_grad()
            (empty.sum() + scalar * (r + 1) + deep.sum() * (r + 1)).backward()
            assert scalar.grad == mean and deep.grad.item() == mean and empty.grad.shape == (0, 3)


def memory_outlives_its_tensor(way: str) -> None:
    """`grad.data = other` while it is under way: the engine's memory stays, and is let go of afterwards."""
    import horovod.torch as hvd

    with calls_by(way):
        param = torch.nn.Parameter(torch.zeros(1 << 18))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param], lr=1.0), [(f"{way}.outlives", param)])
        param.sum().backward()
        optimizer.zero_grad()
        memory = np.full(1 << 18, hvd.rank() + 1.0, np.float32)
        param.grad, there = torch.from_numpy(memory), weakref.ref(memory)
        del memory
        hook_of(param)(param)
        param.grad.data = torch.zeros(1 << 18)
        gc.collect()
        assert there() is not None
        optimizer.synchronize()
        gc.collect()
        assert there() is None
        param.grad = torch.full((1 << 18,), hvd.rank() + 1.0)
        hook_of(param)(param)
        optimizer.synchronize()
        assert param.grad.eq(sum(range(1, hvd.size() + 1)) / hvd.size()).all()


def computed_again_while_under_way(way: str) -> None:
    import horovod.torch as hvd

    with calls_by(way):
        model = net()
        optimizer = distributed(model)
        x, y = shards(hvd.rank(), hvd.size())[0]
        plain_step(model, optimizer, x, y)
        params = list(model.parameters())
        for param in params:
            param.grad = torch.full_like(param, hvd.rank() + 1.0)
        hook_of(params[0])(params[0])
        with pytest.raises(AssertionError, match="0.weight was computed again while its reduction was still"):
            hook_of(params[0])(params[0])
        optimizer.synchronize()  # the others, too
        mean = sum(range(1, hvd.size() + 1)) / hvd.size()
        assert all(param.grad.eq(mean).all() for param in params)
        plain_step(model, optimizer, x, y)


def dropped_optimizer(way: str) -> None:
    """Its hooks stay with torch, and do nothing."""
    import horovod.torch as hvd

    with calls_by(way):
        model = net()
        optimizer = distributed(model)
        x, y = shards(hvd.rank(), hvd.size())[0]
        plain_step(model, optimizer, x, y)
        hooks = [(p, hook_of(p)) for p in model.parameters()]
        there = weakref.ref(optimizer._hvd.reducer)
        del optimizer
        gc.collect()
        assert there() is None
        for param, hook in hooks:
            param.grad = torch.full_like(param, hvd.rank() + 1.0)
            hook(param)
            assert param.grad.eq(hvd.rank() + 1.0).all()


SCENES = [usual_case, unusual_gradients, memory_outlives_its_tensor, computed_again_while_under_way]
SCENES += [dropped_optimizer]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_hooks(scene, way):
    shared_world(2).run(scene, way)


def interrupted_wait(way: str) -> None:
    """Ctrl-C while gradients are waited for: waiting again gives all of them."""
    import horovod.torch as hvd

    class Interrupted(BaseException):
        pass

    def interrupt(*_: Any) -> None:
        raise Interrupted

    with calls_by(way):
        model = net()
        optimizer = distributed(model)
        x, y = shards(hvd.rank(), hvd.size())[0]
        plain_step(model, optimizer, x, y)
        for param in model.parameters():
            param.grad = torch.full_like(param, hvd.rank() + 1.0)
        if hvd.rank() == 0:
            before = signal.signal(signal.SIGUSR1, interrupt)
            try:
                for param in model.parameters():
                    hook_of(param)(param)
                me = threading.main_thread().ident
                timer = threading.Timer(0.1, lambda: signal.pthread_kill(me, signal.SIGUSR1))
                with pytest.raises(Interrupted):
                    timer.start()
                    optimizer.synchronize()
                timer.join()
            finally:
                signal.signal(signal.SIGUSR1, before)
        hvd.allreduce(torch.zeros(1), name=f"{way}.now the other may go on")
        if hvd.rank() != 0:
            for param in model.parameters():
                hook_of(param)(param)
        optimizer.synchronize()
        mean = sum(range(1, hvd.size() + 1)) / hvd.size()
        assert all(param.grad.eq(mean).all() for param in model.parameters())


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupted_wait_is_taken_up_again(way):
    shared_world(2).run(interrupted_wait, way)
