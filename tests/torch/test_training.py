# SPDX-License-Identifier: Apache-2.0
"""Training loops as people write them: two ranks with half the batch equal one process with all of it."""

from __future__ import annotations

import pytest
import torch
from tests_support import shared_world
from torch_training import (
    STEPS,
    assert_same,
    batches,
    distributed,
    loss_of,
    net,
    plain_step,
    run_plain,
    sgd,
    shards,
    trained,
)

OPTIMIZERS = {
    "SGD": sgd,
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
}


def every_optimizer() -> None:
    for make in OPTIMIZERS.values():
        assert_same(run_plain(make), trained(make))


def clipping() -> None:
    """Between backward and step, with nothing else: the norm is that of the reduced gradients."""
    import horovod.torch as hvd

    def loop(model, optimizer, data):
        for x, y in data:
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()

    model, reference = net(), net()
    loop(model, distributed(hvd, model), shards(hvd.rank(), hvd.size()))
    loop(reference, sgd(reference.parameters()), batches())
    assert_same(model, reference)


def old_clipping() -> None:
    """The idiom of existing scripts gives the same."""
    import horovod.torch as hvd

    model, reference = net(), net()
    optimizer, plain = distributed(hvd, model), sgd(reference.parameters())
    for (x, y), (whole_x, whole_y) in zip(shards(hvd.rank(), hvd.size()), batches()):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        with optimizer.skip_synchronize():
            optimizer.step()
        plain.zero_grad()
        loss_of(reference, whole_x, whole_y).backward()
        torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.05)
        plain.step()
    assert_same(model, reference)


def warns_after_synchronize() -> None:
    import horovod.torch as hvd

    model = net()
    optimizer = distributed(hvd, model)
    x, y = shards(hvd.rank(), hvd.size())[0]
    loss_of(model, x, y).backward()
    optimizer.synchronize()
    with pytest.warns(UserWarning, match=r"optimizer.step\(\) called without optimizer.skip_synchronize\(\)"):
        optimizer.step()


def grad_scaler() -> None:
    """An overflow on one rank makes every rank skip the step and lower the scale."""
    import horovod.torch as hvd

    if not hasattr(torch.amp, "GradScaler"):
        return  # before torch 2.3 there are scalers for CUDA only

    model, reference = net().float(), net().float()
    optimizer, plain = distributed(hvd, model), sgd(reference.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=100)
    for step, ((x, y), (whole_x, whole_y)) in enumerate(zip(shards(hvd.rank(), hvd.size()), batches())):
        bad = step == 1
        x, y = x.float(), y.float()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model, x, y)
        if bad and hvd.rank() == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if not bad:
            plain.zero_grad()
            loss_of(reference, whole_x.float(), whole_y.float()).backward()
            torch.nn.utils.clip_grad_norm_(reference.parameters(), 1.0)
            plain.step()
    assert scaler.get_scale() == 128.0
    assert_same(model, reference, tolerance=1e-5)


def closures() -> None:
    """LBFGS decides by the loss how often to call the closure: all ranks must see the same loss."""
    import horovod.torch as hvd

    def make(params):
        return torch.optim.LBFGS(params, lr=0.5, max_iter=5, line_search_fn="strong_wolfe")

    def loop(model, optimizer, data):
        losses = []
        for x, y in data:

            def closure(x=x, y=y):
                optimizer.zero_grad()
                loss = loss_of(model, x, y)
                loss.backward()
                return loss

            losses.append(optimizer.step(closure).item())
        return losses

    model, reference = net(), net()
    got = loop(model, distributed(hvd, model, make), shards(hvd.rank(), hvd.size()))
    wanted = loop(reference, make(reference.parameters()), batches())
    assert got == pytest.approx(wanted, rel=1e-6)
    assert_same(model, reference, tolerance=1e-6)


def accumulation() -> None:
    """backward_passes_per_step, with a short last group."""
    import horovod.torch as hvd

    def loop(model, optimizer, data, passes):
        for start in range(0, len(data), passes):
            optimizer.zero_grad()
            group = data[start : start + passes]
            for x, y in group:
                (loss_of(model, x, y) / len(group)).backward()
            optimizer.step()

    for passes in (2, 3):
        model, reference = net(), net()
        optimizer = distributed(hvd, model, backward_passes_per_step=passes)
        loop(model, optimizer, shards(hvd.rank(), hvd.size(), steps=5), passes)
        loop(reference, sgd(reference.parameters()), batches(steps=5), passes)
        assert_same(model, reference)


def no_sync() -> None:
    import horovod.torch as hvd

    model, reference = net(), net()
    optimizer, plain = distributed(hvd, model), sgd(reference.parameters())
    data, whole = shards(hvd.rank(), hvd.size()), batches()
    for first in range(0, STEPS, 2):
        optimizer.zero_grad()
        with optimizer.no_sync():
            loss_of(model, *data[first]).backward()
            local = model[0].weight.grad.clone()
        loss_of(model, *data[first + 1]).backward()
        plain.zero_grad()
        for x, y in whole[first : first + 2]:
            loss_of(reference, x, y).backward()
        torch.testing.assert_close(model[0].weight.grad, reference[0].weight.grad)
        optimizer.step()
        plain.step()
        assert not torch.allclose(local, hvd.broadcast(local, 0)) or hvd.rank() == 0  # stayed local
    assert_same(model, reference)
    # A step after nothing but local passes still reduces them.
    optimizer.zero_grad()
    with optimizer.no_sync():
        loss_of(model, *data[0]).backward()
    optimizer.step()
    plain.zero_grad()
    loss_of(reference, *whole[0]).backward()
    plain.step()
    assert_same(model, reference)
    # A step inside uses the local gradients.
    with optimizer.no_sync():
        optimizer.zero_grad()
        loss_of(model, *data[1]).backward()
        optimizer.step()
    weights = hvd.allgather(model[0].weight.detach()[None])
    assert not torch.allclose(weights[0], weights[1])


def several_backwards() -> None:
    """Two losses, two backward calls, one step; and gradients that are never cleared."""
    import horovod.torch as hvd

    for op in (hvd.Average, hvd.Sum):
        scale = 1 if op == hvd.Average else hvd.size()
        model, reference = net(), net()
        optimizer, plain = distributed(hvd, model, op=op), sgd(reference.parameters())
        data, whole = shards(hvd.rank(), hvd.size()), batches()
        for step in range(3):
            for offset in (0, 1):
                loss_of(model, *data[(step + offset) % STEPS]).backward()
                (loss_of(reference, *whole[(step + offset) % STEPS]) * scale).backward()
                torch.testing.assert_close(model[0].weight.grad, reference[0].weight.grad)
            optimizer.step()
            plain.step()
        assert_same(model, reference)


def retained_graph() -> None:
    import horovod.torch as hvd

    model, reference = net(), net()
    optimizer, plain = distributed(hvd, model), sgd(reference.parameters())
    for (x, y), (whole_x, whole_y) in zip(shards(hvd.rank(), hvd.size()), batches()):
        for m, o, a, b in ((model, optimizer, x, y), (reference, plain, whole_x, whole_y)):
            o.zero_grad()
            loss = loss_of(m, a, b)
            loss.backward(retain_graph=True)
            (loss * 2).backward()
            o.step()
    assert_same(model, reference)


def set_to_none() -> None:
    import horovod.torch as hvd

    for value in (True, False):
        model, reference = net(), net()
        optimizer, plain = distributed(hvd, model), sgd(reference.parameters())
        for (x, y), (whole_x, whole_y) in zip(shards(hvd.rank(), hvd.size()), batches()):
            for m, o, a, b in ((model, optimizer, x, y), (reference, plain, whole_x, whole_y)):
                o.zero_grad(set_to_none=value)
                loss_of(m, a, b).backward()
                o.step()
            model.zero_grad()  # the module's own, behind the optimizer's back
            reference.zero_grad()
        assert_same(model, reference)


def gan() -> None:
    """Two models, two optimizers without names, one backward through both."""
    import horovod.torch as hvd

    def loop(wrap, data):
        torch.manual_seed(3)
        generator = torch.nn.Linear(6, 3).double()
        critic = torch.nn.Linear(3, 1).double()
        g = wrap(torch.optim.Adam(generator.parameters(), lr=0.01))
        c = wrap(torch.optim.Adam(critic.parameters(), lr=0.01))
        for x, y in data:
            c.zero_grad()
            (critic(generator(x).detach()).mean() - critic(y).mean()).backward()
            c.step()
            g.zero_grad()
            (-critic(generator(x)).mean()).backward()  # also fills the critic's gradients
            g.step()
        return torch.nn.Sequential(generator, critic)

    got = loop(hvd.DistributedOptimizer, shards(hvd.rank(), hvd.size()))
    assert_same(got, loop(lambda o: o, batches()))


def checkpointed() -> None:
    from torch.utils.checkpoint import checkpoint

    import horovod.torch as hvd

    for reentrant in (True, False):
        model, reference = net(), net()
        optimizer, plain = distributed(hvd, model), sgd(reference.parameters())
        for (x, y), (whole_x, whole_y) in zip(shards(hvd.rank(), hvd.size()), batches()):
            optimizer.zero_grad()
            x.requires_grad_(True)
            hidden = checkpoint(lambda a, m=model: m[1](m[0](a)), x, use_reentrant=reentrant)
            torch.nn.functional.mse_loss(model[2](hidden), y).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
            plain.zero_grad()
            loss_of(reference, whole_x, whole_y).backward()
            torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.05)
            plain.step()
        assert_same(model, reference)


def create_graph() -> None:
    """Second derivatives through reduced gradients' graphs stay local; the first are reduced."""
    import horovod.torch as hvd

    model, reference = net(), net()
    optimizer, plain = distributed(hvd, model), sgd(reference.parameters())
    for (x, y), (whole_x, whole_y) in zip(shards(hvd.rank(), hvd.size()), batches()):
        for m, o, a, b in ((model, optimizer, x, y), (reference, plain, whole_x, whole_y)):
            o.zero_grad()
            loss_of(m, a, b).backward(create_graph=True)
            for p in m.parameters():
                p.grad = p.grad.detach()
            o.step()
    assert_same(model, reference)


def compiled() -> None:
    """A compiled module; its hooks fire outside of the compiled region."""
    import horovod.torch as hvd

    model, reference = net(), net()
    optimizer, plain = distributed(hvd, model), sgd(reference.parameters())
    fast = torch.compile(model, backend="aot_eager")
    for (x, y), (whole_x, whole_y) in zip(shards(hvd.rank(), hvd.size()), batches()):
        plain_step(fast, optimizer, x, y)
        plain_step(reference, plain, whole_x, whole_y)
    assert_same(model, reference)


def interrupted_backward() -> None:
    """An exception in backward on all ranks; the loop goes on with the next batch."""
    import horovod.torch as hvd

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise RuntimeError("on purpose")

    model, reference = net(), net()
    optimizer, plain = distributed(hvd, model), sgd(reference.parameters())
    data, whole = shards(hvd.rank(), hvd.size()), batches()
    hidden = Fails.apply(model[1](model[0](data[0][0])))
    with pytest.raises(RuntimeError, match="on purpose"):
        model[2](hidden).sum().backward()  # the last layer's gradients are on their way
    for (x, y), (whole_x, whole_y) in zip(data, whole):
        plain_step(model, optimizer, x, y)
        plain_step(reference, plain, whole_x, whole_y)
    assert_same(model, reference)


def wrapped_twice() -> None:
    """A second wrapper around the same parameters replaces the first instead of reducing twice."""
    import horovod.torch as hvd

    model, reference = net(), net()
    first = distributed(hvd, model)
    second = hvd.DistributedOptimizer(first, model.named_parameters())
    plain = sgd(reference.parameters())
    for (x, y), (whole_x, whole_y) in zip(shards(hvd.rank(), hvd.size()), batches()):
        plain_step(model, second, x, y)
        plain_step(reference, plain, whole_x, whole_y)
    assert_same(model, reference)
    assert first.param_groups is second.param_groups


def uneven_data() -> None:
    """A rank that is out of data joins; until all have joined it counts as zeros."""
    import horovod.torch as hvd

    model, reference = net(), net()
    optimizer, plain = distributed(hvd, model), sgd(reference.parameters())
    data = shards(hvd.rank(), hvd.size())[: 2 + hvd.rank()]
    for x, y in data:
        plain_step(model, optimizer, x, y)
    last = hvd.join()
    assert last == hvd.size() - 1
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)  # the joined ranks missed the last steps
    everyone = [shards(rank, hvd.size())[: 2 + rank] for rank in range(hvd.size())]
    for step in range(1 + hvd.size()):
        plain.zero_grad()
        losses = [loss_of(reference, *part[step]) for part in everyone if step < len(part)]
        (sum(losses) / hvd.size()).backward()
        plain.step()
    assert_same(model, reference)


CASES = [
    every_optimizer, clipping, old_clipping, warns_after_synchronize, grad_scaler, closures, accumulation,
    no_sync, several_backwards, retained_graph, set_to_none, gan, checkpointed, create_graph, compiled,
    interrupted_backward, wrapped_twice, uneven_data,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.filterwarnings("ignore")
def test_training(case):
    shared_world(2).run(case, timeout=300)


@pytest.mark.parametrize("case", [every_optimizer, clipping, closures, uneven_data], ids=lambda c: c.__name__)
def test_training_on_three(case):
    shared_world(3).run(case, timeout=300)
