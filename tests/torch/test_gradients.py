# SPDX-License-Identifier: Apache-2.0
"""Kinds of parameters and gradients: unused, frozen, added later, sparse, compressed, on a process set."""

from __future__ import annotations

from typing import Any, List

import pytest
import torch
from tests_support import shared_world
from torch_training import (
    assert_same,
    batches,
    distributed,
    loss_of,
    mine,
    net,
    plain_step,
    run_plain,
    sgd,
    shards,
    trained,
)


def every_argument() -> None:
    import horovod.torch as hvd

    reference = trained(sgd)
    assert_same(run_plain(gradient_predivide_factor=2.0), reference)
    assert_same(run_plain(groups=2), reference)
    assert_same(run_plain(groups=10), reference)
    half = run_plain(op=hvd.Sum)
    model = net()  # the sum of the ranks' mean losses is size times the mean loss of all
    optimizer = sgd(model.parameters())
    for x, y in batches():
        optimizer.zero_grad()
        (loss_of(model, x, y) * hvd.size()).backward()
        optimizer.step()
    assert_same(half, model)
    assert_same(run_plain(compression=hvd.Compression.fp16), reference, tolerance=2e-2)
    assert_same(run_plain(compression=hvd.Compression.bf16), reference, tolerance=1e-1)
    with pytest.warns(DeprecationWarning, match="num_groups"):
        run_plain(num_groups=1)
    model = net()
    groups = [[model[0].weight, model[2].weight]]
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), groups=groups)
    for x, y in shards(hvd.rank(), hvd.size()):
        plain_step(model, optimizer, x, y)
    assert_same(model, reference)


class Branches(torch.nn.Module):
    """Uses a different branch according to what it is told."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = torch.nn.Linear(6, 4)
        self.heads = torch.nn.ModuleList([torch.nn.Linear(4, 3) for _ in range(3)])
        self.double()

    def forward(self, x: torch.Tensor, head: int) -> torch.Tensor:
        return self.heads[head](torch.tanh(self.trunk(x)))


def unused_parameters() -> None:
    """Each rank uses another head: each gradient is the average with the others' zeros. With clipping."""
    import horovod.torch as hvd

    n, r = hvd.size(), hvd.rank()
    model, reference = Branches(), Branches()
    make = lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9)  # noqa: E731
    optimizer, plain = distributed(hvd, model, make), make(reference.parameters())
    for x, y in batches():
        optimizer.zero_grad()
        ((model(mine(x, r, n), r) - mine(y, r, n)) ** 2).mean().backward()
        assert model.heads[2].weight.grad.eq(0).all()  # used by nobody
        loss_everywhere = hvd.allreduce(torch.tensor(1.0), name="metric")  # a collective in between
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        plain.zero_grad()
        sum(((reference(mine(x, k, n), k) - mine(y, k, n)) ** 2).mean() for k in range(n)).div(n).backward()
        torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.1)
        plain.step()
        assert loss_everywhere == 1
    assert_same(model, reference)


def no_backward_on_one_rank() -> None:
    """A rank without data calls only step."""
    import horovod.torch as hvd

    model, reference = net(), net()
    optimizer, plain = distributed(hvd, model), sgd(reference.parameters())
    for step, (x, y) in enumerate(batches()):
        optimizer.zero_grad()
        plain.zero_grad()
        if hvd.rank() == 0 or step % 2:
            loss_of(model, x, y).backward()
        optimizer.step()
        (loss_of(reference, x, y) * (1 if step % 2 else 1 / hvd.size())).backward()
        plain.step()
    assert_same(model, reference)


def frozen_and_unfrozen() -> None:
    import horovod.torch as hvd

    model, reference = net(), net()
    optimizer = plain = None
    for m in (model, reference):
        m[0].weight.requires_grad_(False)
    make = lambda params: torch.optim.SGD(params, lr=0.1)  # noqa: E731
    optimizer, plain = distributed(hvd, model, make), make(reference.parameters())
    for step, ((x, y), (whole_x, whole_y)) in enumerate(zip(shards(hvd.rank(), hvd.size()), batches())):
        for m, o, a, b in ((model, optimizer, x, y), (reference, plain, whole_x, whole_y)):
            if step == 1:
                m[0].weight.requires_grad_(True)
            if step == 2:
                m[2].weight.requires_grad_(False)
                m[2].weight.grad = None
            o.zero_grad()
            loss_of(m, a, b).backward()
            o.step()
        assert_same(model, reference)


def parameters_added_later() -> None:
    import horovod.torch as hvd

    model, reference = net(), net()
    make = lambda params: torch.optim.SGD(params, lr=0.1)  # noqa: E731
    optimizer = distributed(hvd, model[0], make)
    plain = make(reference[0].parameters())
    for step, ((x, y), (whole_x, whole_y)) in enumerate(zip(shards(hvd.rank(), hvd.size()), batches())):
        if step == 1:
            optimizer.add_param_group({"params": [model[2].weight]})
            plain.add_param_group({"params": [reference[2].weight]})
        if step == 2:  # through the wrapped optimizer
            optimizer.optimizer.add_param_group({"params": [model[2].bias], "lr": 0.2})
            plain.add_param_group({"params": [reference[2].bias], "lr": 0.2})
        plain_step(model, optimizer, x, y)
        plain_step(reference, plain, whole_x, whole_y)
        model.zero_grad(), reference.zero_grad()
    assert_same(model, reference)


def channels_last() -> None:
    import horovod.torch as hvd

    def make():
        torch.manual_seed(0)
        layers = [torch.nn.Conv2d(3, 5, 3), torch.nn.ReLU(), torch.nn.Conv2d(5, 2, 2)]
        return torch.nn.Sequential(*layers).double().to(memory_format=torch.channels_last)

    generator = torch.Generator().manual_seed(5)
    whole = [torch.randn(4, 3, 6, 6, generator=generator, dtype=torch.float64) for _ in range(3)]
    for compression in (hvd.Compression.none, hvd.Compression.bf16):
        model, reference = make(), make()
        optimizer = distributed(hvd, model, compression=compression)
        plain = sgd(reference.parameters())
        for x in whole:
            for m, o, a in ((model, optimizer, mine(x, hvd.rank(), hvd.size())), (reference, plain, x)):
                o.zero_grad()
                (m(a.contiguous(memory_format=torch.channels_last)) ** 2).mean().backward()
                o.step()
        assert model[0].weight.grad.is_contiguous(memory_format=torch.channels_last)
        assert_same(model, reference, 1e-9 if compression is hvd.Compression.none else 1e-1)


def sparse_gradients() -> None:
    import horovod.torch as hvd

    def make():
        torch.manual_seed(0)
        return torch.nn.Embedding(10, 4, sparse=True).double()

    words = [torch.tensor([[1, 2], [1, 5]]), torch.tensor([[7, 7], [7, 2]])]
    for dense in (False, True):
        model, reference = make(), make()
        optimizer = distributed(hvd, model, lambda p: torch.optim.SGD(p, lr=0.1), sparse_as_dense=dense)
        plain = torch.optim.SGD(reference.parameters(), lr=0.1)
        for batch in words:
            optimizer.zero_grad(), plain.zero_grad()
            (model(mine(batch, hvd.rank(), hvd.size())) ** 2).mean().backward()
            assert model.weight.grad.is_sparse
            (reference(batch) ** 2).mean().backward()
            optimizer.step(), plain.step()
        assert_same(model, reference)


def dense_where_that_is_less() -> None:
    """Sparse gradients of more bytes than dense ones travel as dense ones from the second step on."""
    import logging

    import horovod.torch as hvd

    lines: List[str] = []
    log = logging.getLogger("horovod")
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        for rows, becomes_dense in ((4, True), (1000, False)):
            torch.manual_seed(0)
            model, reference = (torch.nn.Embedding(rows, 2, sparse=True).double() for _ in range(2))
            reference.load_state_dict(model.state_dict())
            optimizer = distributed(hvd, model, lambda p: torch.optim.SGD(p, lr=0.1))
            plain = torch.optim.SGD(reference.parameters(), lr=0.1)
            words = torch.tensor([0, 1, 2, 3] * hvd.size())
            for _ in range(3):
                optimizer.zero_grad(), plain.zero_grad()
                (model(mine(words, hvd.rank(), hvd.size())) ** 2).mean().backward()
                (reference(words) ** 2).mean().backward()
                assert model.weight.grad.is_sparse
                optimizer.step(), plain.step()
            assert_same(model, reference)
            assert optimizer._hvd.reducer.slots[0].as_dense is becomes_dense
            said = [line for line in lines if "sent as dense" in line]
            assert len(said) == becomes_dense, lines
            lines.clear()
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def sparse_sums_stay_sums() -> None:
    """Rows of sparse gradients are added whatever the op is, in every step."""
    import horovod.torch as hvd

    model = torch.nn.Embedding(2, 2, sparse=True)
    optimizer = distributed(hvd, model, lambda p: torch.optim.SGD(p, lr=1.0), op=hvd.Max)
    for _ in range(3):
        before = model.weight.detach().clone()
        optimizer.zero_grad()
        model(torch.tensor([0, 1])).sum().backward()
        optimizer.step()
        torch.testing.assert_close(before - model.weight.detach(), torch.full((2, 2), float(hvd.size())))


def scaled_sparse_tensors() -> None:
    import horovod.torch as hvd

    mine_ = torch.sparse_coo_tensor([[1]], [hvd.rank() + 1.0], (3,))
    total = hvd.allreduce(mine_, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5).to_dense()
    assert total.tolist() == [0.0, hvd.size() * (hvd.size() + 1) / 2, 0.0]
    half = hvd.allreduce(mine_, op=hvd.Sum, postscale_factor=0.5).to_dense()
    assert half.tolist() == [0.0, hvd.size() * (hvd.size() + 1) / 4, 0.0]


def process_set() -> None:
    """Two independent trainings side by side, and a rank that takes part in none."""
    import horovod.torch as hvd

    pair = hvd.add_process_set([0, 2])
    model, reference = net(), net()
    optimizer, plain = distributed(hvd, model, process_set=pair), sgd(reference.parameters())
    if pair.included():
        data, whole = shards(pair.rank(), 2), batches()
    else:  # acts locally
        data = whole = batches(seed=9)
    for (x, y), (whole_x, whole_y) in zip(data, whole):
        plain_step(model, optimizer, x, y)
        plain_step(reference, plain, whole_x, whole_y)
    assert_same(model, reference)
    hvd.remove_process_set(pair)


class ErrorFeedback:
    """A compressor of one's own, with state for each parameter: what rounding lost is added the next time."""

    def __init__(self) -> None:
        self.lost: Any = 0

    def for_parameter(self, name: str, parameter: torch.Tensor) -> ErrorFeedback:
        return ErrorFeedback()

    def compress(self, tensor: torch.Tensor) -> Any:
        wanted = tensor + self.lost
        wire = wanted.to(torch.bfloat16)
        self.lost = wanted - wire.to(wanted.dtype)
        return wire, tensor.dtype

    def decompress(self, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx)


def own_compressor() -> None:
    import horovod.torch as hvd

    make = lambda p: torch.optim.SGD(p, lr=0.1)  # noqa: E731
    model, reference = net(), net()
    optimizer = distributed(hvd, model, make, compression=ErrorFeedback())
    plain = make(reference.parameters())
    for _ in range(10):
        for (x, y), (whole_x, whole_y) in zip(shards(hvd.rank(), hvd.size()), batches()):
            plain_step(model, optimizer, x, y)
            plain_step(reference, plain, whole_x, whole_y)
    assert_same(model, reference, tolerance=3e-3)
    ours = hvd.allgather(torch.cat([p.detach().flatten() for p in model.parameters()])[None])
    assert torch.equal(ours[0], ours[1])


CASES = [
    every_argument, unused_parameters, no_backward_on_one_rank, frozen_and_unfrozen, parameters_added_later,
    channels_last, sparse_gradients, dense_where_that_is_less, own_compressor, sparse_sums_stay_sums,
    scaled_sparse_tensors,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.filterwarnings("ignore")
def test_gradients(case):
    shared_world(2).run(case, timeout=300)


def test_gradients_on_a_process_set():
    shared_world(3).run(process_set, timeout=300)
