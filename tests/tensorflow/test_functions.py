# SPDX-License-Identifier: Apache-2.0
"""Broadcasts of variables and objects, synchronised batch normalisation."""

from __future__ import annotations

from tf_worlds import run


def broadcasts():
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow as hvd

    me = hvd.rank()
    made = [
        tf.Variable(tf.cast(tf.fill([3], me + 1), dtype))
        for dtype in (tf.float32, tf.int64, tf.bfloat16, tf.bool, tf.float64)
    ]
    made[3].assign([bool(me)] * 3)
    hvd.broadcast_variables(made, root_rank=1)
    values = [v.numpy().astype("float32").tolist() for v in made]
    updated = hvd.broadcast_([made[0], made[1]], root_rank=0)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        v = tf.compat.v1.get_variable("v", initializer=tf.constant([float(me), 7.0]))
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(hvd.broadcast_global_variables(1))
        in_session = session.run(v).tolist()
    objects = (
        hvd.broadcast_object({"from": me, "data": np.arange(3)}, root_rank=1)["from"],
        hvd.broadcast_object_fn(root_rank=0)(me),
        hvd.allgather_object(["x"] * (me + 1)),
    )
    return values, [t.numpy().tolist() for t in updated], in_session, objects


def test_broadcasts():
    expected = (
        [[2.0] * 3, [2.0] * 3, [2.0] * 3, [1.0] * 3, [2.0] * 3],
        [[2.0] * 3, [2] * 3],
        [1.0, 7.0],
        (1, 0, [["x"], ["x", "x"]]),
    )
    assert run("tensorflow", broadcasts) == [expected, expected]


def normalised():
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow as hvd

    me = hvd.rank()
    random = np.random.default_rng(0)
    everything = random.normal(2.0, 3.0, size=(9, 5, 4)).astype(np.float32)
    mine = everything[:3] if me == 0 else everything[3:]  # unequal batches
    seed = random.normal(size=(9, 5, 4)).astype(np.float32)
    upstream = seed[:3] if me == 0 else seed[3:]

    def outcome(layer, x, weight):
        layer.build((None, 5, 4))
        x = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
            loss = tf.reduce_sum(y * weight)
        return y, tape.gradient(loss, x), layer.moving_mean, layer.moving_variance

    sync = outcome(hvd.SyncBatchNormalization(), mine, upstream)
    whole = outcome(tf.keras.layers.BatchNormalization(), everything, seed)
    rows = slice(0, 3) if me == 0 else slice(3, 9)
    close = [
        np.allclose(sync[0], whole[0][rows], atol=1e-4),
        np.allclose(sync[1], whole[1][rows], atol=1e-4),
        np.allclose(sync[2], whole[2], atol=1e-4),
        np.allclose(sync[3], whole[3], atol=1e-4),
    ]
    tf.keras.backend.clear_session()
    layers = [tf.keras.layers.Input((3,)), hvd.SyncBatchNormalization(), hvd.SyncBatchNormalization()]
    names = [layer.name for layer in tf.keras.Sequential(layers).layers]
    close.append(names == ["sync_batch_normalization", "sync_batch_normalization_1"])
    try:
        hvd.SyncBatchNormalization(fused=True)
        close.append(False)
    except ValueError as error:
        close.append("SyncBatchNormalization does not support fused=True." in str(error))
    return [bool(c) for c in close]


def test_sync_batch_normalization_equals_one_big_batch():
    assert run("tensorflow", normalised) == [[True] * 6] * 2
