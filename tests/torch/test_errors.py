# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, and how it is told."""

from __future__ import annotations

import pytest
import torch
from tests_support import run_world, shared_world


def disagreements() -> None:
    """Ranks that disagree about an operation all get the same HorovodInternalError, and go on afterwards."""
    import horovod.torch as hvd

    r = hvd.rank()

    def refused(text, call):
        with pytest.raises(hvd.HorovodInternalError, match=text):
            call()
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()

    refused("Mismatched ALLREDUCE tensor shapes", lambda: hvd.allreduce(torch.ones(2 + r), name="e1"))
    refused(
        "Mismatched data types",
        lambda: hvd.allreduce(torch.ones(2, dtype=torch.float32 if r else torch.float64), name="e2"),
    )
    refused("Mismatched operations", lambda: _either(r))
    refused("root rank", lambda: hvd.broadcast(torch.ones(2), r, name="e4"))
    refused("reduction op", lambda: hvd.allreduce(torch.ones(2), op=hvd.Min if r else hvd.Max, name="e5"))
    refused("factors", lambda: hvd.allreduce(torch.ones(2), prescale_factor=1.0 + r, name="e6"))
    refused("dimension 1", lambda: hvd.allgather(torch.ones(2, 2 + r), name="e7"))
    refused("tensor of rank", lambda: hvd.allgather(torch.ones((2,) * (1 + r)), name="e8"))
    refused("rank-zero tensor", lambda: hvd.allgather(torch.tensor(1.0), name="e9"))
    refused("rank-zero tensor", lambda: hvd.allgather(torch.tensor(1 + 2j), name="e9c"))
    refused("rank-zero tensor", lambda: hvd.alltoall(torch.tensor(1 + 2j), name="e9t"))
    refused("Mismatched BROADCAST tensor shapes", lambda: hvd.broadcast(torch.ones(2 + r), 0, name="e10"))


def _either(r):
    """The same wire name for different operations."""
    from horovod.common import constants, engine

    kind = constants.ALLREDUCE if r else constants.ALLGATHER
    x = torch.ones(2)
    request = engine.request(kind, "either", constants.FLOAT32, (2,), x.data_ptr(), x.data_ptr() if r else 0)
    engine.release(engine.run([request], keep=(x,)))


def wrong_arguments() -> None:
    import horovod.torch as hvd

    n, r = hvd.size(), hvd.rank()
    for text, call in {
        "Reducescatter does not support scalar inputs": lambda: hvd.reducescatter(torch.tensor(1.0)),
        "alltoall expects a 1D splits tensor": lambda: hvd.alltoall(
            torch.ones(4), torch.ones(2, 2, dtype=torch.int32)
        ),
        "32-bit integer": lambda: hvd.alltoall(torch.ones(4), torch.ones(n)),
        "greater than the first dimension": lambda: hvd.alltoall(torch.ones(4), [9] * n),
        "even multiple": lambda: hvd.alltoall(torch.ones(n + 1)),
        "does not equal number of workers": lambda: hvd.alltoall(torch.ones(4), [1] * (n + 1)),
        "is not supported": lambda: hvd.allreduce(torch.ones(2, 2).to_sparse_csr()),
        "Reducescatter does not support scalar input": lambda: hvd.reducescatter(torch.tensor(1 + 2j)),
        "is not a reduction": lambda: hvd.allreduce(torch.ones(1), op=17),
        "invalid root rank": lambda: hvd.broadcast(torch.ones(1), n + 3),
    }.items():
        with pytest.raises(ValueError, match=text):
            call()
    with pytest.raises(hvd.HorovodInternalError, match="only supports AVERAGE and SUM"):
        hvd.reducescatter(torch.ones(2), op=hvd.Max)
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        with pytest.raises(
            NotImplementedError, match="Only Sum and Average are supported with sparse tensors"
        ):
            hvd.allreduce(torch.ones(2, 2).to_sparse(), op=op)
    with pytest.raises(TypeError):
        hvd.allreduce(torch.ones(1), process_set=hvd.ProcessSet([0]))  # never registered
    only = hvd.add_process_set([0])
    if r != 0:
        for verb in (hvd.allreduce, hvd.allgather, hvd.reducescatter):
            with pytest.raises(ValueError):
                verb(torch.ones(2), process_set=only)
        with pytest.raises(ValueError):
            hvd.barrier(process_set=only)
    hvd.remove_process_set(only)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == n


def handles() -> None:
    import horovod.torch as hvd

    x = torch.ones(3)
    handle = hvd.allreduce_async(x, op=hvd.Sum, name="h")
    while not hvd.poll(handle):
        pass
    assert hvd.synchronize(handle).tolist() == [hvd.size()] * 3
    assert hvd.synchronize(handle) is None  # a second time
    with pytest.raises(ValueError, match=f"Handle {handle} was not created or has been cleared."):
        hvd.poll(handle)
    # Results may be taken in another order, and inputs may be dropped at once.
    many = [hvd.allreduce_async(torch.full((100,), float(i)), op=hvd.Sum) for i in range(50)]
    for i in reversed(range(50)):
        assert hvd.synchronize(many[i])[0].item() == i * hvd.size()
    empty = hvd.grouped_allreduce_async([])
    assert hvd.poll(empty) and hvd.synchronize(empty) == () and hvd.grouped_allreduce([]) == []
    bad = hvd.allreduce_async(torch.ones(1 + hvd.rank()), name="bad")
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched"):
        hvd.synchronize(bad)


@pytest.mark.parametrize("case", [disagreements, wrong_arguments, handles], ids=lambda c: c.__name__)
def test_errors(case):
    shared_world(2).run(case, timeout=300)


def lifecycle() -> None:
    import horovod.torch as hvd

    for call in (
        lambda: hvd.allreduce(torch.ones(1)),
        lambda: hvd.allgather_async(torch.ones(1)),
        lambda: hvd.reducescatter(torch.ones(2)),
        lambda: hvd.join(),
    ):
        with pytest.raises(hvd.HorovodInternalError, match="has not been initialized; use hvd.init"):
            call()
    with pytest.raises(ValueError, match="Horovod has not been initialized"):
        hvd.size()
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2)
    for _ in range(3):  # init and shutdown any number of times, with an optimizer that stays
        hvd.init()
        assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size() == 2
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        model(torch.ones(1, 2) * hvd.rank()).sum().backward()
        optimizer.step()
        hvd.shutdown()
        assert not hvd.is_initialized()
    hvd.init()
    model(torch.ones(1, 2) * hvd.rank()).sum().backward()
    optimizer.step()
    weights = hvd.allgather_object(model.weight.tolist())
    assert weights[0] == weights[1]


def test_init_and_shutdown():
    run_world(lifecycle, 2)


def dies() -> str:
    import os
    import time

    import horovod.torch as hvd

    hvd.init()
    model = torch.nn.Linear(4, 4)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(1000):
        if hvd.rank() == 1 and step == 3:
            os._exit(0)  # not a failure to the launcher, but the rank is gone
        optimizer.zero_grad()
        try:
            model(torch.ones(1, 4)).sum().backward()
        except hvd.HorovodInternalError as error:
            return str(error)
        optimizer.step()
        time.sleep(0.01)
    return "nothing happened"


def test_a_dead_rank_is_an_error_in_backward():
    with pytest.raises(Exception, match="rank 1"):
        run_world(dies, 2, timeout=300)
