# SPDX-License-Identifier: Apache-2.0
"""Gradients through the collectives, in and out of jit, against formulas worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests_support import check_close


def run_gradients(mode):
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    n, rank = hvd.size(), hvd.rank()
    weights = [
        np.arange(12, dtype=np.float32).reshape(6, 2) + 10 * r for r in range(n)
    ]  # the incoming gradients
    mean = sum(weights) / n
    x = jnp.asarray(weights[rank])

    def gradient(verb, incoming):
        function = jax.grad(lambda a: (verb(a) * incoming).sum())
        return (jax.jit(function) if mode == "jit" else function)(x)

    failed = []

    def check(what, got, want):
        failed.append(check_close(got, np.asarray(want, np.float32), f"{mode} {what}"))

    mine = jnp.asarray(weights[rank])
    check("average", gradient(hvd.allreduce, mine), mean)
    check("sum", gradient(lambda a: hvd.allreduce(a, op=hvd.Sum), mine), n * mean)
    scaled = gradient(lambda a: hvd.allreduce(a, op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0), mine)
    check("scaled", scaled, 6 * n * mean)
    check("tree", gradient(lambda a: hvd.allreduce({"a": a, "b": a}, op=hvd.Sum)["b"], mine), n * mean)
    check("fp16", gradient(lambda a: hvd.allreduce(a, compression=hvd.Compression.fp16), mine), mean)
    check("root", gradient(lambda a: hvd.broadcast(a, 0), mine), mean if rank == 0 else 0 * mean)

    tall = [np.arange(12 * n, dtype=np.float32).reshape(6 * n, 2) * (r + 1) for r in range(n)]
    gathered = gradient(hvd.allgather, jnp.asarray(tall[rank]))
    check("allgather", gathered, (sum(tall) / n)[6 * rank : 6 * rank + 6])

    even = jnp.concatenate([x] * n)
    function = jax.grad(lambda a: (hvd.alltoall(a) * even).sum())
    got = (jax.jit(function) if mode == "jit" else function)(even)
    check(
        "alltoall",
        got,
        np.concatenate([np.concatenate([weights[r]] * n)[6 * rank : 6 * rank + 6] for r in range(n)]),
    )

    block = -(-6 // n) if rank < 6 % n else 6 // n
    start = sum(-(-6 // n) if r < 6 % n else 6 // n for r in range(rank))
    assert hvd.reducescatter(x).shape[0] == block
    blocks = np.concatenate([weights[r][s] for r, s in enumerate(_blocks(6, n))])
    check("reducescatter", gradient(hvd.reducescatter, mine[start : start + block]), blocks)
    got = gradient(lambda a: hvd.reducescatter(a, op=hvd.Sum), mine[start : start + block])
    check("reducescatter sum", got, n * blocks)

    mixed = jax.grad(lambda a: (hvd.allreduce([a, jnp.arange(3)], op=hvd.Sum)[0] * mine).sum())
    check("beside integers", mixed(x), n * mean)
    again = jax.jit(jax.grad(jax.checkpoint(lambda a: (hvd.allreduce(a, op=hvd.Sum) ** 2).sum())))
    check("checkpoint", again(x), 2 * n * n * mean)
    return [text for text in failed if text]


def _blocks(rows, n):
    import reference

    return [reference.block(rows, n, i) for i in range(n)]


@pytest.mark.parametrize("mode", ["eager", "jit"])
def test_gradients(world, mode):
    for rank, failures in enumerate(world.run(run_gradients, mode)):
        assert not failures, f"rank {rank}: {failures}"


def run_uneven():
    """Outside of jit the ranks' rows may differ, also in the backward pass."""
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    n, rank = hvd.size(), hvd.rank()
    rows = [r + 1 for r in range(n)]
    total, start = sum(rows), sum(rows[:rank])
    incoming = jnp.arange(total, dtype=jnp.float32)
    got = jax.grad(lambda a: (hvd.allgather(a) * incoming * (rank + 1)).sum())(
        jnp.ones((rows[rank],), jnp.float32)
    )
    want = np.arange(total, dtype=np.float32)[start : start + rows[rank]] * (n + 1) / 2
    failed = [check_close(got, want.astype(np.float32), "allgather")]

    splits = [j + 1 for j in range(n)]  # the same on all ranks: rank j receives j + 1 rows from everybody
    x = jnp.ones((sum(splits) + 2,), jnp.float32)
    got = jax.grad(lambda a: (hvd.alltoall(a, splits)[0] * (rank + 1)).sum())(x)
    want = np.concatenate([np.full(j + 1, j + 1.0) for j in range(n)] + [np.zeros(2)]).astype(np.float32)
    failed.append(check_close(got, want, "alltoall"))
    return [text for text in failed if text]


def test_gradients_of_uneven_rows(world):
    assert world.run(run_uneven) == [[]] * world.np
