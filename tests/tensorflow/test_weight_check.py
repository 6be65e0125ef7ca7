# SPDX-License-Identifier: Apache-2.0
"""Ranks that train different weights are told so after their first step, others are not."""

from __future__ import annotations

import pytest
from tf_worlds import run


def trained(mode, alike, setting):
    """Warnings of a few steps of a loop that broadcasts (or not) after its first step, as tutorials do."""
    import os
    import warnings

    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.common.basics import basics

    os.environ["HOROVOD_CHECK_WEIGHTS"] = setting
    variables = [tf.Variable(tf.ones([4, 2]) * (hvd.rank() + i), name=f"w{i}") for i in range(3)]
    optimizer = tf.keras.optimizers.SGD(0.1)
    optimizer.build(variables)

    def step(first):
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(v * v) for v in variables])
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables))
        if first and alike:
            hvd.broadcast_variables(variables, root_rank=0)

    if mode != "eager":
        step = tf.function(step)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(6):
            step(i == 0)
            hvd.barrier()  # the answer is there when the next step looks for it
        before = basics.metrics()["tensors"]
        step(False)
        sent = basics.metrics()["tensors"] - before
    del os.environ["HOROVOD_CHECK_WEIGHTS"]
    texts = [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]
    return [t for t in texts if "weights" in t], sent


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_different_weights_are_named_once_by_the_first_rank(mode):
    (texts, sent), (others, _) = run("tensorflow", trained, mode, False, "1")
    assert len(texts) == 1 and others == []
    assert "those of rank 1 are not rank 0's" in texts[0] and "w0" in texts[0]
    assert "hvd.broadcast_variables" in texts[0]
    assert sent == 3  # later steps send gradients only


@pytest.mark.parametrize("alike, setting", [(True, "1"), (False, "0")], ids=["alike", "turned off"])
@pytest.mark.parametrize("mode", ["eager", "function"])
def test_nothing_is_said_of_equal_weights_or_when_turned_off(mode, alike, setting):
    assert run("tensorflow", trained, mode, alike, setting) == [([], 3)] * 2


def one_after_the_other():
    """Models of one variable, of which rank 0 keeps only the last: its ids come again."""
    import gc
    import warnings

    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.tensorflow import _weights

    kept = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for model in range(30):
            variable = tf.Variable(tf.ones([4]) * (model + 1.0))
            for _ in range(4):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(variable * variable)
                gradients = hvd.DistributedGradientTape(tape).gradient(loss, [variable])
                variable.assign_sub(0.1 * gradients[0])
                hvd.barrier()
            if hvd.rank() == 1:
                kept.append(variable)
            del variable, tape, loss, gradients
            gc.collect()
    texts = [str(w.message) for w in caught if "weights differ" in str(w.message)]
    return texts, len(_weights._watches)


def test_variables_that_take_the_place_of_others_are_compared_with_their_like():
    (texts, watched), _ = run("tensorflow", one_after_the_other)
    assert texts == []
    assert watched < 30


def in_session(alike):
    """A monitored session, with a broadcast of all variables or of none."""
    import warnings

    import tensorflow as tf

    import horovod.tensorflow as hvd

    v1 = tf.compat.v1
    with tf.Graph().as_default(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        weights = v1.get_variable("weights", initializer=tf.ones([4]) * (hvd.rank() + 1.0))
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1))
        train = optimizer.minimize(tf.reduce_sum(weights * weights))
        hook = hvd.BroadcastGlobalVariablesHook(0)
        if not alike:
            hook.bcast_op = tf.no_op()
        with v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            for _ in range(5):
                session.run(train)
                hvd.barrier()
    return [str(w.message) for w in caught if "weights differ" in str(w.message)]


@pytest.mark.parametrize("alike", [True, False])
def test_the_hook_of_a_session_compares_weights(alike):
    texts, others = run("tensorflow", in_session, alike)
    assert others == []
    assert ["first to differ is weights:0" in t for t in texts] == ([] if alike else [True])
