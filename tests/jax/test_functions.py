# SPDX-License-Identifier: Apache-2.0
"""Broadcasting parameters, Python objects, joining, and the life of the module."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from world import worker_env


def run_broadcast_parameters():
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    rank = hvd.rank()
    tree = {
        "layers": [{"w": jnp.full((2, 3), rank, jnp.bfloat16)}, {"w": np.full((4,), rank, np.int64)}],
        "step": rank,
        "rate": float(rank),
        "on": bool(rank),
        "nothing": None,
        "name": f"rank {rank}",
        "key": jax.random.key(rank),
    }
    got = hvd.broadcast_parameters(tree, root_rank=1)
    same_key = jnp.array_equal(jax.random.key_data(got["key"]), jax.random.key_data(jax.random.key(1)))
    return [
        got["layers"][0]["w"].dtype == jnp.bfloat16 and bool((got["layers"][0]["w"] == 1).all()),
        got["layers"][1]["w"].dtype == jnp.int64 and bool((got["layers"][1]["w"] == 1).all()),
        int(got["step"]) == 1 and float(got["rate"]) == 1.0 and bool(got["on"]),
        got["nothing"] is None and got["name"] == f"rank {rank}",
        bool(same_key) and jax.tree.structure(got) == jax.tree.structure(tree),
    ]


def test_broadcast_parameters(world):
    assert world.run(run_broadcast_parameters) == [[True] * 5] * world.np


def run_optimizer_state():
    import jax
    import jax.numpy as jnp
    import optax

    import horovod.jax as hvd

    tx = hvd.DistributedOptimizer(optax.adam(0.1))
    params = jnp.full((3,), float(hvd.rank()))
    state = tx.init(params)
    _, state = tx.update(jnp.ones(3), state, params)
    state = jax.tree.map(lambda leaf: leaf + hvd.rank(), state)
    state = hvd.broadcast_optimizer_state(state, root_rank=0)
    return [float(jnp.sum(leaf)) for leaf in jax.tree.leaves(state)]


def test_broadcast_optimizer_state(world):
    results = world.run(run_optimizer_state)
    assert all(result == results[0] for result in results) and len(results[0]) >= 3


def run_objects():
    import horovod.jax as hvd

    mine = {"rank": hvd.rank(), "data": list(range(hvd.rank()))}
    return hvd.broadcast_object(mine, root_rank=hvd.size() - 1), hvd.allgather_object(mine)


def test_objects(world):
    everyone = [{"rank": r, "data": list(range(r))} for r in range(world.np)]
    assert world.run(run_objects) == [(everyone[-1], everyone)] * world.np


def run_join():
    """The last rank has more batches than the others, in jitted steps."""
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    step = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="joined"))
    got = [float(step(jnp.ones(2))[0]) for _ in range(2 + hvd.rank())]
    last = hvd.join()
    return got, last


def test_join(world):
    n = world.np
    for rank, (got, last) in enumerate(world.run(run_join)):
        assert got == ([float(n)] * 2 + [float(n - 1 - extra) for extra in range(n - 1)])[: 2 + rank]
        assert last == n - 1


SCRIPT = """
import jax, jax.numpy as jnp
import horovod.jax as hvd

try:
    hvd.allreduce(jnp.ones(3))
except ValueError as error:
    print("before:", error)
for world in range(2):
    hvd.init()
    assert hvd.size() == 1 and hvd.rank() == 0 and hvd.is_initialized()
    total = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))(jnp.arange(3))
    print(total.tolist(), hvd.allgather(jnp.ones(2)).shape)
    hvd.shutdown()
    assert not hvd.is_initialized()
hvd.init()
pending = jax.jit(lambda x: hvd.allreduce(x @ x))(jnp.ones((400, 400)))  # still running when the script ends
"""


def run_wrong_splits():
    import jax.numpy as jnp

    import horovod.jax as hvd

    said = []
    for splits in ([1.9, 1.9], [[1], [2]], 2):
        try:
            said.append(str(hvd.alltoall(jnp.arange(4), splits=splits)))
        except ValueError as error:
            said.append(str(error))
    return said


def test_splits_are_whole_numbers_in_one_dimension(world):
    flat, whole = (
        "alltoall expects a 1D splits tensor",
        "alltoall expects splits to contain 32-bit integer elements.",
    )
    assert world.run(run_wrong_splits) == [[whole, flat, flat]] * world.np


def test_one_process_and_starting_again():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=worker_env({"JAX_PLATFORMS": "cpu"}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines == [
        "before: Horovod has not been initialized; use hvd.init().",
        "[0, 1, 2] (2,)",
        "[0, 1, 2] (2,)",
    ]
    assert "Error" not in done.stderr, done.stderr


def test_public_names():
    import horovod.jax as hvd

    missing = [name for name in hvd.__all__ if not hasattr(hvd, name)]
    assert not missing
