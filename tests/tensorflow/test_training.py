# SPDX-License-Identifier: Apache-2.0
"""Each style of program on two ranks gives the weights of one process that sees both halves of a batch."""

from __future__ import annotations

import pytest
from tf_worlds import run


def data(steps=6, batch=8):
    import numpy as np

    random = np.random.default_rng(3)
    x = random.normal(size=(steps, batch, 5)).astype(np.float32)
    y = (x @ random.normal(size=(5, 1)) + 0.1).astype(np.float32)
    return x, y


def half(array, hvd):
    """This rank's part of a batch."""
    count = array.shape[0] // hvd.size()
    return array[hvd.rank() * count : (hvd.rank() + 1) * count]


def start(seed):
    import numpy as np

    return [np.random.default_rng(seed).normal(size=s).astype(np.float32) for s in ((5, 3), (3,), (3, 1))]


def loss_of(weights, x, y):
    import tensorflow as tf

    hidden = tf.nn.relu(tf.matmul(x, weights[0]) + weights[1])
    return tf.reduce_mean((tf.matmul(hidden, weights[2]) - y) ** 2)


def by_tape(mode):
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow as hvd

    x, y = data()

    def train(seed, distributed):
        weights = [tf.Variable(w) for w in start(seed)]
        optimizer = tf.keras.optimizers.Adam(0.05)
        optimizer.build(weights)

        def step(a, b):
            with tf.GradientTape() as tape:
                loss = loss_of(weights, a, b)
            if distributed:
                tape = hvd.DistributedGradientTape(tape)
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))

        if mode == "function":
            step = tf.function(step)
        for number, (a, b) in enumerate(zip(x, y)):
            if distributed and number == 0:
                hvd.broadcast_variables(weights, root_rank=0)
            step(*[tf.constant(half(v, hvd) if distributed else v) for v in (a, b)])
        return [w.numpy() for w in weights]

    ours = train(hvd.rank(), True)  # other starting values on other ranks
    alone = train(0, False)
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, alone))


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_tape(mode):
    assert max(run("tensorflow", by_tape, mode)) < 1e-5


def by_session(passes, average, sparse=False):
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow as hvd

    v1 = tf.compat.v1
    x, y = data()

    def train(seed, distributed):
        with tf.Graph().as_default():
            weights = [v1.get_variable(f"w{i}", initializer=w) for i, w in enumerate(start(seed))]
            a, b = v1.placeholder(tf.float32, [None, 5]), v1.placeholder(tf.float32, [None, 1])
            step = v1.train.get_or_create_global_step()
            hooks = []
            if distributed:
                optimizer = hvd.DistributedOptimizer(
                    v1.train.AdagradOptimizer(0.1),
                    backward_passes_per_step=passes,
                    average_aggregated_gradients=average,
                )
                hooks = [hvd.BroadcastGlobalVariablesHook(0)]
                train_op = optimizer.minimize(loss_of(weights, a, b), global_step=step)
            else:
                scale = 1.0 if average else float(passes)
                train_op = v1.train.AdagradOptimizer(0.1).minimize(
                    scale * loss_of(weights, a, b), global_step=step
                )
            with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
                if distributed:
                    for first, second in zip(x, y):
                        session.run(train_op, {a: half(first, hvd), b: half(second, hvd)})
                else:
                    for i in range(0, len(x), passes):  # the passes of a step as one big batch
                        session.run(
                            train_op,
                            {a: np.concatenate(x[i : i + passes]), b: np.concatenate(y[i : i + passes])},
                        )
                return session.run(weights), int(session.run(step))

    (ours, steps), (alone, _) = train(hvd.rank(), True), train(0, False)
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, alone)), steps


@pytest.mark.parametrize("passes, average", [(1, False), (2, False), (3, True)])
def test_tf1_session_with_hook_and_aggregation(passes, average):
    for difference, steps in run("tensorflow", by_session, passes, average):
        assert difference < 1e-5
        assert steps == 6


def adasum(ranks):
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow as hvd

    v1 = tf.compat.v1
    chosen = hvd.global_process_set if ranks is None else hvd.add_process_set(ranks)
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=np.array([1.0, 2.0], np.float32))
        optimizer = hvd.DistributedOptimizer(
            v1.train.GradientDescentOptimizer(0.5), op=hvd.Adasum, process_set=chosen
        )
        direction = tf.constant([[1.0, 0.0], [0.0, 1.0]][hvd.rank()])
        train = optimizer.minimize(tf.reduce_sum(w * direction))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(train)
            result = optimizer.get_name(), session.run(w).tolist()
    if ranks is not None:
        hvd.remove_process_set(chosen)
    return result


def test_adasum_adds_orthogonal_steps():
    assert run("tensorflow", adasum, None) == [("DistributedDeltaGradientDescentOptimizer", [0.5, 1.5])] * 2


def test_adasum_in_a_process_set():
    alone = [
        ("DistributedGradientDescentOptimizer", [0.5, 2.0]),
        ("DistributedGradientDescentOptimizer", [1.0, 1.5]),
    ]
    assert run("tensorflow", adasum, [0]) == alone


def helpers():
    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

    helper = LocalGradientAggregationHelperEager(
        2, lambda gs, vs: [hvd.allreduce(g, op=hvd.Sum) for g in gs], False, True
    )
    v = tf.Variable([0.0])
    seen = []
    for i in range(4):
        (g,) = helper.compute_gradients([tf.constant([float(i + 1)])], [v])
        seen.append((float(g[0]), int(helper.counter)))
        helper.apply_gradients(lambda g=g: v.assign_add(g), lambda: v.assign_add([0.0]))
    errors = []
    slices = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([0]), tf.constant([1, 1]))
    for call in (
        lambda: helper.compute_gradients([slices], [v]),
        lambda: LocalGradientAggregationHelperEager(0, None, False, False),
    ):
        try:
            call()
        except ValueError as error:
            errors.append(str(error))
    return seen, float(v[0]), errors


def test_aggregation_helper():
    # 1, then (1 + 2) on two ranks halved; 3, then (3 + 4) on two ranks halved; only the reduced are applied
    expected = (
        [(1.0, 1), (3.0, 0), (3.0, 1), (7.0, 0)],
        10.0,
        [
            "IndexedSlices are not supported when `backward_passes_per_step` > 1 and "
            "`sparse_as_dense` is False.",
            "backward_passes_per_step must be > 0",
        ],
    )
    assert run("tensorflow", helpers) == [expected, expected]
