# SPDX-License-Identifier: Apache-2.0
"""Collectives inside regions compiled with fullgraph=True, and their gradients."""

from __future__ import annotations

import pytest
import torch
from tests_support import shared_world

pytestmark = pytest.mark.skipif(
    not hasattr(torch.library, "register_autograd"), reason="collectives in compiled regions need torch 2.4"
)


def compiled(backend: str) -> None:
    import torch._dynamo

    import horovod.torch as hvd

    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    n = hvd.size()

    def check(function, *shapes):
        torch._dynamo.reset()
        fast = torch.compile(function, fullgraph=True, backend=backend)
        for turn in range(2):
            grads = []
            for call in (function, fast):
                xs = [(torch.arange(2.0 * s).view(s, 2) + hvd.rank() + turn).requires_grad_() for s in shapes]
                out = call(*xs)
                out.sum().backward()
                grads.append((out.detach(), [x.grad for x in xs]))
            torch.testing.assert_close(grads[1], grads[0])

    check(lambda x: torch.relu(hvd.allreduce(x * 2, op=hvd.Sum) + 1), 3)
    check(lambda x: hvd.allreduce(x, name="named", prescale_factor=0.5).sin(), 3)
    check(lambda x: hvd.allreduce(x, compression=hvd.Compression.bf16, op=hvd.Sum) * 2, 3)
    check(lambda x, y: sum(t.sum() for t in hvd.grouped_allreduce([x * 2, y], op=hvd.Sum)), 2, 3)
    check(lambda x: hvd.broadcast(x * x, 1).cos(), 2)
    check(lambda x: hvd.reducescatter(x * 3, op=hvd.Sum) ** 2, n * 2)
    check(lambda x: hvd.alltoall(x * 3) ** 2, n * 2)
    check(lambda x: hvd.allgather(x * 3) ** 2, hvd.rank() + 1)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(backend):
    shared_world(2).run(compiled, backend, timeout=300)


def inductor() -> None:
    """The real compiler, on a model with a collective in its middle."""
    import horovod.torch as hvd

    def function(x, w):
        return torch.tanh(hvd.allreduce(x @ w, op=hvd.Average)).sum()

    torch.manual_seed(0)
    results = []
    for call in (function, torch.compile(function, fullgraph=True)):
        x = torch.ones(4, 3) * (hvd.rank() + 1)
        w = torch.linspace(-1, 1, 6).view(3, 2).requires_grad_()
        loss = call(x, w)
        loss.backward()
        results.append((loss.detach(), w.grad))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.slow
def test_inductor():
    import shutil

    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("inductor needs a C++ compiler; none was found")
    shared_world(2).run(inductor, timeout=300)


def operators() -> None:
    """The operators obey torch's own rules for custom operators."""
    import horovod.torch as hvd

    x = torch.ones(2 * hvd.size(), 2)
    namespace = vars(torch)["ops"].horovod  # spelled so that the test's function can be sent by value
    for name in ("allreduce", "broadcast", "alltoall", "reducescatter"):
        op = getattr(namespace, name).default
        arguments = ([x], None, "", 0, hvd.Sum, 1.0, 1.0, 0, [])
        torch.library.opcheck(op, arguments, test_utils=("test_schema", "test_faketensor"))


def test_operators():
    shared_world(2).run(operators, timeout=300)
