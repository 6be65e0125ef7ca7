# SPDX-License-Identifier: Apache-2.0
"""Steps that nobody marks are counted where they show: each front end's usual loop of ROUNDS steps."""

from __future__ import annotations

import pytest
from tests_support import run_world

from horovod.common import timelines

ROUNDS = 6


def tape_eagerly():
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    weights = [tf.Variable(tf.ones([100, 20])), tf.Variable(tf.ones([20]))]
    for _ in range(ROUNDS):
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(tf.ones([4, 100]) @ weights[0] + weights[1])
        tape.gradient(loss, weights)
    return hvd.metrics()


def optimizer_in_a_function():
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    weights = [tf.Variable(tf.ones([100, 20])), tf.Variable(tf.ones([20]))]
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.ones([4, 100]) @ weights[0] + weights[1])
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return hvd.allreduce(loss, name="loss")

    for _ in range(ROUNDS):
        step()
    return hvd.metrics()


def jax_program():
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    hvd.init()
    params = {"w": jnp.ones((100, 20)), "b": jnp.ones(20)}

    @jax.jit
    def step(params):
        loss, gradients = jax.value_and_grad(lambda p: jnp.sum(jnp.ones((4, 100)) @ p["w"] + p["b"]))(params)
        gradients = hvd.allreduce(gradients)
        return hvd.allreduce(loss), jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)

    for _ in range(ROUNDS):
        loss, params = step(params)
    jax.block_until_ready(params)
    return hvd.metrics()


@pytest.mark.parametrize("loop", [tape_eagerly, optimizer_in_a_function, jax_program])
def test_steps_show_in_the_tensors(tmp_path, loop):
    path = tmp_path / "trace.json"
    for metrics in run_world(loop, 2, env={"HOROVOD_TIMELINE": str(path)}):
        # The last is not over before the next begins; a small tensor may look like a step at first.
        assert ROUNDS - 1 <= metrics["steps"] <= ROUNDS + 1
        assert metrics["step_us"] >= metrics["last_step_us"] > 0
    for own in (path, tmp_path / "trace.rank1.json"):
        steps = [event["args"] for event in timelines.read(str(own)) if event.get("name") == "STEP"]
        assert [step["n"] for step in steps] == list(range(1, len(steps) + 1)) and len(steps) >= ROUNDS - 1
        assert all(step["inferred"] for step in steps)


def marked_late():
    import numpy as np

    import horovod.numpy as hvd
    from horovod.common import observation

    hvd.init()
    for _ in range(ROUNDS):
        hvd.allreduce(np.ones(10_000, np.float32), name="gradient")
    inferred = hvd.metrics()["steps"]
    for _ in range(3):
        hvd.allreduce(np.ones(10_000, np.float32), name="gradient")
        observation.step_done()
    hvd.allreduce(np.ones(10_000, np.float32), name="gradient")
    return inferred, hvd.metrics()["steps"]


def test_after_the_first_mark_only_marks_count():
    # The last round without a mark shows when the next begins.
    assert run_world(marked_late, 2) == [(ROUNDS - 1, ROUNDS + 3)] * 2
