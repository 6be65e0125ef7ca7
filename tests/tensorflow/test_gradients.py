# SPDX-License-Identifier: Apache-2.0
"""Gradients through the collectives, against what the definitions say."""

from __future__ import annotations

import pytest
from tf_worlds import run


def gradients(mode):
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow as hvd

    me, size = hvd.rank(), hvd.size()
    x0 = np.arange(8, dtype=np.float32).reshape(4, 2) + me
    weights = np.arange(16, dtype=np.float32).reshape(8, 2)

    def gradient(function):
        def compute(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
                loss = tf.reduce_sum(y * tf.constant(weights)[: tf.shape(y)[0]] * (me + 1.0))
            return tape.gradient(loss, x)

        run_it = compute if mode == "eager" else tf.function(compute)
        return run_it(tf.constant(x0)).numpy()

    w = weights
    mean = sum(range(1, size + 1)) / size  # of the ranks' factors (me + 1)
    wrong = []

    def check(what, got, expected):
        if got.shape != expected.shape or not np.allclose(got, expected):
            wrong.append((what, got, expected))

    check("allreduce sum", gradient(lambda x: hvd.allreduce(x, op=hvd.Sum)), w[:4] * mean * size)
    check("allreduce average", gradient(lambda x: hvd.allreduce(x)), w[:4] * mean)
    check(
        "allreduce scaled",
        gradient(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)),
        w[:4] * mean * size * 1.5,
    )
    check(
        "grouped",
        gradient(lambda x: hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum)[1]),
        2 * w[:4] * mean * size,
    )
    rows = slice(4 * me, 4 * me + 4)
    check("allgather", gradient(lambda x: hvd.allgather(x)), w[rows] * mean)
    uneven = slice(3 * me, 3 * me + 3 + me)
    ragged = gradient(lambda x: hvd.allgather(x[: 3 + me]))
    check("allgather uneven", ragged[: 3 + me], w[uneven] * mean)
    check("grouped allgather", gradient(lambda x: hvd.grouped_allgather([x, x])[0]), w[rows] * mean)
    check("broadcast", gradient(lambda x: hvd.broadcast(x, 1)), w[:4] * mean * (me == 1))
    sent = gradient(lambda x: hvd.alltoall(x, splits=[2, 2])[0])
    back = np.concatenate([w[2 * me : 2 * me + 2] * (r + 1) for r in range(size)])
    check("alltoall", sent, back)
    own = np.concatenate([w[:2] * (r + 1) for r in range(size)])
    check("reducescatter average", gradient(lambda x: hvd.reducescatter(x)), own)
    check("reducescatter sum", gradient(lambda x: hvd.reducescatter(x, op=hvd.Sum)), own * size)
    check("grouped reducescatter", gradient(lambda x: hvd.grouped_reducescatter([x, x])[0]), own)
    return wrong


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_gradients(mode):
    assert run("tensorflow", gradients, mode) == [[], []]


def alltoall_of_a_part(mode):
    import tensorflow as tf

    import horovod.tensorflow as hvd

    def compute(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            sent, _ = hvd.alltoall(x, splits=[1, 2])  # of five rows
            loss = tf.reduce_sum(sent) * (hvd.rank() + 1.0)
        return tape.gradient(loss, x)

    x = tf.ones([5, 2])
    if mode == "session":
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            held = tf.compat.v1.placeholder(tf.float32, [None, 2])
            (gradient,) = tf.gradients(hvd.alltoall(held, splits=[1, 2])[0] * (hvd.rank() + 1.0), held)
            return session.run(gradient, {held: x.numpy()})[:, 0].tolist()
    return (compute if mode == "eager" else tf.function(compute))(x).numpy()[:, 0].tolist()


@pytest.mark.parametrize("mode", ["eager", "function", "session"])
def test_rows_that_alltoall_did_not_send_have_zero_gradient(mode):
    assert run("tensorflow", alltoall_of_a_part, mode) == [[1.0, 2.0, 2.0, 0.0, 0.0]] * 2
