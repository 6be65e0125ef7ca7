# SPDX-License-Identifier: Apache-2.0
"""Sparse gradients: sent as rows or, where that is fewer bytes, as a whole; the values are the same."""

from __future__ import annotations

import pytest
from tf_worlds import run

ROWS, COLUMNS = 12, 4


def reduced(mode, touched):
    """The reduced gradient of an embedding of which each rank touches some rows: its value, and its rows."""
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow as hvd

    me = hvd.rank()
    table = tf.Variable(tf.zeros([ROWS, COLUMNS]))
    places = touched[me]

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, tf.constant(places, tf.int64))) * (me + 1.0)
        return hvd.DistributedGradientTape(tape).gradient(loss, [table])[0]

    if mode == "session":
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            v = tf.compat.v1.get_variable("v", initializer=tf.zeros([ROWS, COLUMNS]))
            loss = tf.reduce_sum(tf.gather(v, tf.constant(places, tf.int64))) * (me + 1.0)
            optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0))
            ((gradient, _),) = optimizer.compute_gradients(loss, [v])
            assert isinstance(gradient, tf.IndexedSlices)
            session.run(tf.compat.v1.global_variables_initializer())
            dense, indices = session.run([tf.convert_to_tensor(gradient), gradient.indices])
    else:
        gradient = (tf.function(step) if mode == "function" else step)()
        assert isinstance(gradient, tf.IndexedSlices)
        dense, indices = tf.convert_to_tensor(gradient).numpy(), gradient.indices.numpy()
    expected = np.zeros([ROWS, COLUMNS])
    for rank, rows in enumerate(touched):
        for row in rows:
            expected[row] += (rank + 1) / len(touched)
    return bool(np.allclose(dense, expected)), sorted(indices.tolist())


@pytest.mark.parametrize("mode", ["eager", "function", "session"])
def test_few_rows_are_gathered(mode):
    touched = [[0, 1, 1], [1, 5]]
    assert run("tensorflow", reduced, mode, touched) == [(True, [0, 1, 1, 5])] * 2


@pytest.mark.parametrize("mode", ["eager", "function", "session"])
def test_many_rows_are_reduced_as_a_whole_and_untouched_ones_left_out(mode):
    touched = [
        list(range(11)),
        [*range(11), 0, 0],
    ]  # 22 rows of 16 + 8 bytes, more than 2 * 12 rows of 16 + 4
    assert run("tensorflow", reduced, mode, touched) == [(True, list(range(11)))] * 2


def logged(touched):
    """What is logged of three steps with few rows and two with many."""
    import logging

    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.common.log import log

    table = tf.Variable(tf.zeros([ROWS, COLUMNS]))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def step(places):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, places))
        return hvd.DistributedGradientTape(tape).gradient(loss, [table])[0]

    lines = []

    class Collect(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())

    handler, level = Collect(), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        for rows in touched:
            step(tf.range(tf.constant(rows, tf.int64)))
    finally:
        log.setLevel(level)
        log.removeHandler(handler)
    return [line.partition("are sent as ")[2] for line in lines]


def test_the_choice_is_logged_when_it_changes():
    rows = "rows: that moves 48 bytes, the other way 480"
    dense = "dense ones: that moves 480 bytes, the other way 576"
    assert run("tensorflow", logged, [1, 1, 1, 12, 12, 1]) == [[rows, dense, rows]] * 2
