# SPDX-License-Identifier: Apache-2.0
"""JAX on a GPU: collectives in jitted programs and outside of them, and training."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")


def programs() -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np

    import horovod.jax as hvd
    from horovod.common import gpu_report

    size, rank = hvd.size(), hvd.rank()
    total = size * (size + 1) / 2
    for dtype in (jnp.float32, jnp.bfloat16, jnp.int32):
        for count in (1, 1000, 300_000):
            x = jnp.full((count,), rank + 1, dtype)
            assert next(iter(x.devices())).platform == "gpu"

            @jax.jit
            def twice(x):
                y = hvd.allreduce(x * 2, op=hvd.Sum)
                return hvd.allreduce(y + 1, op=hvd.Max)

            for _ in range(3):
                assert (np.asarray(twice(x).astype(jnp.float32)) == 2 * total + 1).all()

    @jax.jit
    def movers(x):
        y = x + 1
        pieces, _ = hvd.alltoall(y, splits=[1] * size)
        return hvd.allgather(y), hvd.broadcast(y, 0), hvd.reducescatter(y, op=hvd.Sum), pieces

    x = jnp.full((size, 3), float(rank))
    gathered, sent, scattered, pieces = movers(x)
    assert np.asarray(gathered)[:, 0].tolist() == [r + 1.0 for r in range(size) for _ in range(size)]
    assert (np.asarray(sent) == 1.0).all()
    assert (np.asarray(scattered) == total).all() and scattered.shape == (1, 3)
    assert np.asarray(pieces)[:, 0].tolist() == [r + 1.0 for r in range(size)]

    for count in (7, 100_000):  # outside of programs
        out = hvd.allreduce(jnp.full((count,), rank + 1.0), op=hvd.Sum)
        assert next(iter(out.devices())).platform == "gpu" and (np.asarray(out) == total).all()
    tree = hvd.allreduce({"a": jnp.ones(3) * rank, "b": [jnp.ones((2, 2))]}, op=hvd.Sum)
    assert (np.asarray(tree["a"]) == total - size).all() and (np.asarray(tree["b"][0]) == size).all()
    rows = hvd.allgather(jnp.full((rank + 1, 2), float(rank)))
    assert rows.shape == (int(total), 2) and next(iter(rows.devices())).platform == "gpu"
    assert gpu_report.read()["sets"][0]["ranks"] == size


def training() -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np

    import horovod.jax as hvd

    def loss(w, x, y):
        return jnp.mean((jnp.tanh(x @ w["in"]) @ w["out"] - y) ** 2)

    keys = jax.random.split(jax.random.PRNGKey(hvd.rank()), 4)
    weights = {"in": jax.random.normal(keys[0], (6, 8)), "out": jax.random.normal(keys[1], (8, 3))}
    weights = hvd.broadcast_parameters(weights, root_rank=0)

    @jax.jit
    def step(w, x, y):
        value, grads = hvd.value_and_grad(loss)(w, x, y)
        return value, jax.tree.map(lambda p, g: p - 0.1 * g, w, grads)

    x, y = jax.random.normal(keys[2], (16, 6)), jax.random.normal(keys[3], (16, 3))
    first = None
    for _ in range(30):
        value, weights = step(weights, x, y)
        first = value if first is None else first
    everybodys = np.asarray(
        hvd.allgather(jnp.concatenate([weights["in"].ravel(), weights["out"].ravel()])[None])
    )
    assert (everybodys == everybodys[0]).all() and np.isfinite(everybodys).all()


def mismatch() -> None:
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    text = ""
    try:
        jax.block_until_ready(jax.jit(lambda x: hvd.allreduce(x))(jnp.ones(3 + hvd.rank())))
    except Exception as error:
        text = str(error)
    assert "shape" in text.lower(), text
    hvd.shutdown()  # jax makes programs after one that failed fail as well, until then
    hvd.init()
    assert float(hvd.allreduce(jnp.ones(()), op=hvd.Sum)) == hvd.size()


@pytest.mark.parametrize("case", [programs, training, mismatch], ids=lambda case: case.__name__)
def test_jax(world, case):
    world.run(case, timeout=120)
