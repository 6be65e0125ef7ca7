# SPDX-License-Identifier: Apache-2.0
"""jit_compile=True: compiled calls on the CPU, and a clear message where they cannot be."""

from __future__ import annotations

from tf_worlds import run


def compiled():
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.tensorflow import _library, _xla

    me = hvd.rank()
    x = tf.constant(np.arange(6, dtype=np.float32).reshape(2, 3)) * (me + 1)

    @tf.function(jit_compile=True)
    def step(t):
        one = hvd.allreduce(t * 2, op=hvd.Sum)
        two, three = hvd.grouped_allreduce([t, one[0]], op=hvd.Sum)
        return one, two, three, hvd.broadcast(t, 1)

    base = np.arange(6, dtype=np.float32).reshape(2, 3)
    one, two, three, four = step(x)
    results = {
        "available": _library.compiled_calls_available(),
        "allreduce": bool(np.allclose(one, 6 * base)),
        "grouped": bool(np.allclose(two, 3 * base) and np.allclose(three, 12 * base[0])),
        "broadcast": bool(np.allclose(four, 2 * base)),
    }

    @tf.function(jit_compile=True)
    def gradient(t):
        with tf.GradientTape() as tape:
            tape.watch(t)
            loss = tf.reduce_sum(hvd.allreduce(t, op=hvd.Sum)) * (me + 1.0)
        return tape.gradient(loss, t)

    results["gradient"] = bool(np.allclose(gradient(x), 3.0))
    v, w = tf.Variable(tf.ones([3])), tf.Variable(2.0)

    @tf.function(jit_compile=True)
    def taped():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(v * v) * w * (me + 1.0)
        return hvd.DistributedGradientTape(tape).gradient(loss, [v, w])

    results["tape"] = bool(np.allclose(taped()[0], 6.0) and np.allclose(taped()[1], 4.5))

    @tf.function(jit_compile=True)
    def wrong(t):
        return hvd.allreduce(t[: 1 + me], name="differs")

    try:
        wrong(x)
        results["error"] = False
    except tf.errors.OpError as error:
        results["error"] = "Mismatched ALLREDUCE tensor shapes" in str(error)

    def message(call):
        try:
            tf.function(call, jit_compile=True)(x)
        except RuntimeError as error:
            return str(error)
        return ""

    results["allgather says what to do"] = "jit_compile=False" in message(lambda t: hvd.allgather(t))
    before, _xla.why_not = _xla.why_not, lambda: "of the test"
    results["elsewhere says what to do"] = "jit_compile=False" in message(lambda t: hvd.allreduce(t))
    _xla.why_not = before
    return results


def test_compiled_collectives():
    for results in run("tensorflow", compiled):
        assert all(results.values()), results
