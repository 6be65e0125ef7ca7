# SPDX-License-Identifier: Apache-2.0
"""A short run of everything that depends on TensorFlow's version, for an environment with an older one.

    .venv-tf-old/bin/python tests/tensorflow/old_version_check.py

Prints the versions and "fine", or fails with what was wrong.
"""

from __future__ import annotations

import os


def check():
    import keras
    import numpy as np
    import tensorflow as tf

    import horovod.keras as hvd_keras
    import horovod.tensorflow as hvd
    from horovod.tensorflow import _library, _xla

    hvd.init()
    me = hvd.rank()
    base = np.arange(6, dtype=np.float32).reshape(3, 2)
    x = tf.constant(base) * (me + 1)
    for dtype in (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64, tf.uint8):
        total = hvd.allreduce(tf.cast(x, dtype), op=hvd.Sum)
        assert total.dtype == dtype and np.array_equal(tf.cast(total, tf.float32), 3 * base), dtype

    @tf.function
    def every(t):
        gathered, (output, splits) = hvd.allgather(t[: 1 + me]), hvd.alltoall(t, splits=[2, 1])
        return (
            hvd.grouped_allreduce([t, 2 * t]),
            gathered,
            output,
            splits,
            hvd.broadcast(t, 1),
            hvd.reducescatter(t),
        )

    grouped, gathered, _, splits, sent, scattered = every(x)
    assert np.allclose(grouped[1], 3 * base) and gathered.shape == (3, 2) and np.allclose(sent, 2 * base)
    assert splits.numpy().tolist() == [[2, 2], [1, 1]][me] and scattered.shape[0] == 2 - me
    assert _library.kernels_defer(), "the kernels block TensorFlow's threads"

    many = [tf.ones([4]) * i for i in range(64)]
    step = tf.function(lambda some: [hvd.allreduce(t, op=hvd.Sum) for t in some])
    for _ in range(20):
        assert np.allclose(step(many)[63], 126.0)

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        w = tf.compat.v1.get_variable("w", initializer=tf.constant([1.0 + me]))
        train = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0)).minimize(
            w * (me + 1.0)
        )
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(hvd.broadcast_global_variables(0))
        session.run(train)
        assert session.run(w).tolist() == [-0.5]

    if _xla.why_not() is None:
        compiled = tf.function(lambda t: hvd.allreduce(t, op=hvd.Sum), jit_compile=True)
        assert np.allclose(compiled(x), 3 * base)
    try:
        hvd.allreduce(x[: 1 + me], name="differs")
        raise AssertionError("shapes differ")
    except tf.errors.FailedPreconditionError as error:
        assert "Mismatched ALLREDUCE tensor shapes" in str(error)

    random = np.random.default_rng(0)
    data, labels = random.normal(size=(32, 4)).astype("f"), random.normal(size=(32, 1)).astype("f")

    def fit(optimizer, rows, batch):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
        model.compile(optimizer, "mse")
        model.fit(data[rows], labels[rows], batch_size=batch, shuffle=False, verbose=0)
        return model.get_weights()

    alone = fit(keras.optimizers.Adam(0.1), np.arange(32), 8)
    halves = np.arange(32).reshape(-1, 8)[:, 4 * me : 4 * me + 4].reshape(-1)
    ours = fit(hvd_keras.DistributedOptimizer(keras.optimizers.Adam(0.1)), halves, 4)
    assert max(np.abs(a - b).max() for a, b in zip(alone, ours)) < 1e-5
    return tf.__version__, keras.__version__, _xla.why_not() is None


if __name__ == "__main__":
    import horovod

    results = horovod.run(
        check, np=2, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    )
    version, keras_version, compiled = results[0]
    calls = "work" if compiled else "are not there"
    print(f"TensorFlow {version}, Keras {keras_version}, compiled calls {calls}: fine")
