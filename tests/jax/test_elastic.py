# SPDX-License-Identifier: Apache-2.0
"""JAX in an elastic job, and its state."""

from __future__ import annotations

import json
import os
import pickle
import sys

import jax.numpy as jnp
from launching import ROOT, horovodrun
from tests_support import run_world

SCRIPT = os.path.join(ROOT, "tests", "runner", "scripts", "elastic_jax.py")


def test_a_rank_is_killed_inside_a_compiled_step(tmp_path):
    words = ["-np", "2", "--min-np", "1", sys.executable, SCRIPT, str(tmp_path / "died")]
    done = horovodrun(*words, timeout=120)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line.partition(":")[2]) for line in done.stdout.splitlines() if '"result"' in line]
    assert len(results) == 2 and results[0]["step"] >= 20
    for one in results:
        assert one["w"] == [float(one["step"])] * 3, "every step counts once, whoever did it"
    assert sorted(one["sizes"] for one in results) == [[2], [2, 1, 2]]


def keep():
    import jax

    import horovod.jax as hvd

    hvd.init()
    mine = float(hvd.rank())
    state = hvd.elastic.JaxState(
        params={"w": jnp.full(2, mine)}, key=jax.random.key(hvd.rank()), step=hvd.rank()
    )
    state.sync()
    assert state.params["w"].tolist() == [0.0, 0.0] and state.step == 0 and type(state.step) is int
    state.params = jax.jit(lambda p: {"w": p["w"] + 1}, donate_argnums=0)(state.params)
    state.step = 1
    state.restore()
    assert state.params["w"].tolist() == [0.0, 0.0] and state.step == 0
    state.params = {"w": state.params["w"] + 5}
    state.step = 7
    state.commit()
    other = hvd.elastic.JaxState(params={"w": jnp.zeros(2)}, key=jax.random.key(9), step=0)
    other.load_snapshot(pickle.loads(pickle.dumps(state.snapshot())))
    assert jax.random.key_data(other.key).tolist() == jax.random.key_data(jax.random.key(0)).tolist()
    other.step = 8
    other.restore()
    return other.params["w"].tolist(), other.step


def test_state():
    assert run_world(keep, 2) == [([5.0, 5.0], 7)] * 2
