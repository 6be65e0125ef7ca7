# SPDX-License-Identifier: Apache-2.0
"""Collectives as MXNet operations: dependencies are kept, arrays may be dropped, errors arrive."""

from __future__ import annotations

import numpy as np


def run_dependencies():
    """A chain of arithmetic and collectives, pushed without a wait, gives what it says."""
    import mxnet as mx

    import horovod.mxnet as hvd

    n, rank = hvd.size(), hvd.rank()
    x = mx.nd.ones((200, 200)) * (rank + 1)
    for i in range(10):
        x = mx.nd.dot(x, mx.nd.eye(200))
        hvd.allreduce_(x, op=hvd.Sum, name=f"chain.{i}")
        y = hvd.broadcast(x + rank, 0, name=f"chain.b.{i}")
        x = y / n
    return float(x[0, 0].asscalar()), float(x.min().asscalar() - x.max().asscalar())


def test_dependencies(world):
    value = sum(r + 1 for r in range(world.np)) / world.np
    assert all(np.allclose(got, (value, 0)) for got in world.run(run_dependencies))


def run_dropped_arrays():
    """Inputs that Python has dropped before the operation runs; ranks push in different orders."""
    import mxnet as mx

    import horovod.mxnet as hvd

    order = list(range(60)) if hvd.rank() % 2 == 0 else list(range(60))[::-1]
    outputs = {
        i: hvd.allreduce(mx.nd.full((50, 50), i + hvd.rank()), op=hvd.Sum, name=f"d{i}", priority=i)
        for i in order
    }
    want = sum(range(hvd.size()))
    return all(np.allclose(outputs[i].asnumpy(), hvd.size() * i + want) for i in order)


def test_dropped_arrays_and_different_orders(world):
    assert all(world.run(run_dropped_arrays))


def run_errors():
    import mxnet as mx

    import horovod.mxnet as hvd

    def reason(function):
        try:
            out = function()
            out.wait_to_read()
            return "no error"
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    x, rank = mx.nd.ones((4, 2)), hvd.rank()
    texts = {
        "shape": reason(lambda: hvd.allreduce(mx.nd.ones((3 + rank,)), name="bad shape")),
        "type": reason(lambda: hvd.allreduce_(x.astype("int32" if rank else "float32"), name="bad type")),
        "rows": reason(lambda: hvd.allgather(mx.nd.ones((2, 2 + rank)), name="bad rows")),
        "root": reason(lambda: hvd.broadcast(x, hvd.size())),
        "splits": reason(lambda: hvd.alltoall(x, [4] * hvd.size())),
        "adasum": reason(lambda: hvd.allreduce(x, op=hvd.Adasum)),
        "op": reason(lambda: hvd.reducescatter(x, op=hvd.Max)),
        "both": reason(lambda: hvd.allreduce(x, average=True, op=hvd.Sum)),
        "list": reason(lambda: hvd.allgather([1, 2])),
        "scalar": reason(lambda: hvd.reducescatter(mx.np.array(1.0))),
        "sparse": reason(lambda: hvd.allreduce(x.tostype("row_sparse"))),
        "after": reason(lambda: hvd.allreduce(x, name="good")),
    }
    return texts


def test_errors(pair):
    wants = {
        "shape": ("MXNetError", "shape"),
        "type": ("MXNetError", "data types"),
        "rows": ("MXNetError", "dimension"),
        "root": ("MXNetError: broadcast received invalid root rank 2", "for provided process set"),
        "splits": ("MXNetError: Sum of splits entries is greater than the first dimension of tensor.", ""),
        "adasum": ("AssertionError", ""),
        "op": ("AssertionError", ""),
        "both": ("ValueError: The op parameter supersedes average.", ""),
        "list": ("AssertionError", ""),
        "scalar": ("ValueError: reducescatter does not support scalar inputs", ""),
        "sparse": ("MXNetError", "dense"),
        "after": ("no error", ""),
    }
    for texts in pair.run(run_errors):
        for what, (start, part) in wants.items():
            assert texts[what].startswith(start) and part in texts[what], (what, texts[what])
