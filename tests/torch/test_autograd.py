# SPDX-License-Identifier: Apache-2.0
"""Gradients of the collectives, against the documented rules."""

from __future__ import annotations

import pytest
import torch
from tests_support import shared_world


def gradients() -> None:
    import horovod.torch as hvd

    n, r = hvd.size(), hvd.rank()
    leaf = lambda rows: (torch.arange(2.0 * rows).view(rows, 2) + r).double().requires_grad_()  # noqa: E731
    weight = lambda out: (torch.arange(1.0, 1 + out.numel()).view_as(out) * (r + 1)).double()  # noqa: E731
    factor = sum(range(1, n + 1))  # the ranks' weights differ by rank + 1

    for op, scale in ((hvd.Sum, 1.0), (hvd.Average, 1.0 / n)):
        x = leaf(3)
        out = hvd.allreduce(x, op=op, prescale_factor=2.0, postscale_factor=0.25)
        out.backward(weight(out))
        torch.testing.assert_close(x.grad, weight(out) / (r + 1) * factor * scale * 0.5)
        xs = [leaf(2), leaf(3)]
        outs = hvd.grouped_allreduce(xs, op=op)
        torch.autograd.backward(outs, [weight(out) for out in outs])
        for x, out in zip(xs, outs):
            torch.testing.assert_close(x.grad, weight(out) / (r + 1) * factor * scale)

    rows = [i + 1 for i in range(n)]
    start = sum(rows[:r])
    x = leaf(rows[r])
    out = hvd.allgather(x)
    out.backward(weight(out))
    averaged = weight(out) / (r + 1) * factor / n
    torch.testing.assert_close(x.grad, averaged[start : start + rows[r]])
    xs = [leaf(rows[r]), leaf(rows[r])]
    outs = hvd.grouped_allgather(xs)
    torch.autograd.backward(outs, [weight(out) for out in outs])
    for x in xs:
        torch.testing.assert_close(x.grad, averaged[start : start + rows[r]])

    x = leaf(2)
    out = hvd.broadcast(x, 1)
    out.backward(weight(out))
    torch.testing.assert_close(x.grad, weight(out) / (r + 1) * factor / n * (1.0 if r == 1 else 0.0))

    splits = [j + 1 for j in range(n)]
    x = leaf(sum(splits) + 1)  # one row that is not sent
    out, received = hvd.alltoall(x, splits)
    out.backward(torch.full_like(out, float(r + 1)))
    wanted = torch.cat([torch.full((j + 1, 2), float(j + 1)) for j in range(n)] + [torch.zeros(1, 2)])
    torch.testing.assert_close(x.grad, wanted.double())
    assert not received.requires_grad

    for op, scale in ((hvd.Sum, n), (hvd.Average, 1)):
        x = leaf(n + 1)
        out = hvd.reducescatter(x, op=op, postscale_factor=0.5)
        out.backward(torch.full_like(out, float(r + 1)))
        sizes = [(n + 1) // n + (1 if i < (n + 1) % n else 0) for i in range(n)]
        wanted = torch.cat([torch.full((size, 2), float(i + 1)) for i, size in enumerate(sizes)])
        torch.testing.assert_close(x.grad, (wanted * scale * 0.5).double())
        xs = [leaf(n + 1), leaf(n + 1)]
        outs = hvd.grouped_reducescatter(xs, op=op)
        torch.autograd.backward(outs, [torch.full_like(out, float(r + 1)) for out in outs])
        torch.testing.assert_close(xs[1].grad, (wanted * scale).double())

    x = leaf(2)
    hvd.allreduce(x, compression=hvd.Compression.bf16, op=hvd.Sum).sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, float(n)))

    x = leaf(2)  # twice differentiable
    cubes = hvd.allreduce(x, op=hvd.Sum, name="twice") ** 3
    (grad,) = torch.autograd.grad(cubes.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    assert second.shape == x.shape and second.ne(0).any()

    with torch.no_grad():
        assert not hvd.allreduce(leaf(2)).requires_grad


@pytest.mark.parametrize("size", [2, 3])
def test_gradients(size):
    shared_world(size).run(gradients, timeout=300)


def on_a_set() -> None:
    import horovod.torch as hvd

    pair = hvd.add_process_set([0, 2])
    if pair.included():
        x = torch.ones(2, requires_grad=True)
        hvd.allgather(x, process_set=pair).sum().backward()
        assert x.grad.tolist() == [1.0, 1.0]
        x = torch.ones(4, requires_grad=True)
        hvd.reducescatter(x, op=hvd.Sum, process_set=pair).sum().backward()
        assert x.grad.tolist() == [2.0] * 4
    hvd.remove_process_set(pair)


def test_gradients_on_a_process_set():
    shared_world(3).run(on_a_set, timeout=300)
