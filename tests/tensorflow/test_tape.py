# SPDX-License-Identifier: Apache-2.0
"""The tapes: reduction, groups, sparse gradients, local sources, persistence, both ways of wrapping."""

from __future__ import annotations

import pytest
from tf_worlds import run


def taped(mode):
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow as hvd

    me, size = hvd.rank(), hvd.size()
    a, b, c, unused = (tf.Variable(tf.ones(s)) for s in ([3], [2, 2], [], [5]))
    variables = [a, b, unused, c]
    own = [float(me + 1), 2.0 * (me + 1), None, 3.0 * (me + 1)]  # this rank's gradients
    mean = sum(range(1, size + 1)) / size

    def record():
        with tf.GradientTape(persistent=True) as tape:
            total = tf.reduce_sum(a) + 2 * tf.reduce_sum(b) + 3 * c
            loss = total * (me + 1)
        return tape, loss

    def reduced(sources=variables, **options):
        def compute():
            tape, loss = record()
            return hvd.DistributedGradientTape(tape, **options).gradient(loss, sources)

        return (compute if mode == "eager" else tf.function(compute))()

    wrong = []

    def check(what, got, factors):
        for g, f in zip(got, factors):
            if (g is None) != (f is None) or (g is not None and not np.allclose(g, f)):
                wrong.append((what, got, factors))
                return

    averaged = [None if g is None else g / (me + 1) * mean for g in own]
    summed = [None if g is None else g * size for g in averaged]
    check("average", reduced(), averaged)
    check("sum", reduced(op=hvd.Sum), summed)
    check("predivide", reduced(gradient_predivide_factor=4.0), averaged)
    check("fp16", reduced(compression=hvd.Compression.fp16), averaged)
    check("2 groups", reduced(groups=2), averaged)
    check("groups of variables", reduced(groups=[[a, c], [b]]), averaged)
    check("subset in groups", reduced(groups=[[c, a]]), averaged)
    tape, loss = record()
    tape = hvd.DistributedGradientTape(tape)
    assert type(tape).__name__ == "GradientTape" and isinstance(tape, tf.GradientTape)
    check("generic names", tape.gradient(loss, variables, use_generic_names=True), averaged)
    check("again: persistent", tape.gradient(loss, variables), averaged)
    if not np.allclose(tape.gradient(loss, a), averaged[0]):
        wrong.append("single source")
    tape.register_local_source(b)
    check(
        "local source, scaled",
        tape.gradient(loss, variables),
        [averaged[0], own[1] / size, None, averaged[3]],
    )
    local, shared = tape.get_local_and_global_gradients(loss, [a, b])
    if [v is b for v, _ in local] != [True] or [v is a for v, _ in shared] != [True]:
        wrong.append("local and global")
    tape, loss = record()
    summing, averaging = hvd.DistributedGradientTape(tape, op=hvd.Sum), hvd.DistributedGradientTape(tape)
    check("two of one tape: sum", summing.gradient(loss, variables), summed)
    check("two of one tape: average", averaging.gradient(loss, variables), averaged)
    check("around another", hvd.DistributedGradientTape(summing).gradient(loss, variables), averaged)
    with hvd.DistributedGradientTape(tf.GradientTape(), scale_local_gradients=False) as inside:
        inside.register_local_source(a)
        loss = tf.reduce_sum(a) * (me + 1)
    check("wrapped before recording, not scaled", inside.gradient(loss, [a]), [own[0]])
    return wrong


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_tape(mode):
    assert run("tensorflow", taped, mode) == [[], []]


def sparse(mode):
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow as hvd

    me = hvd.rank()
    table = tf.Variable(tf.zeros([6, 2]))
    rows = [[0, 1, 1], [1, 5, 5]][me]

    def compute(**options):
        def step():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.gather(table, rows)) * (me + 1.0)
            gradient = hvd.DistributedGradientTape(tape, **options).gradient(loss, [table])[0]
            return gradient, tf.convert_to_tensor(gradient)

        return (step if mode == "eager" else tf.function(step))()

    expected = np.zeros([6, 2])
    for rank, places in enumerate([[0, 1, 1], [1, 5, 5]]):
        for place in places:
            expected[place] += rank + 1
    sparse_sum, dense_sum = compute(op=hvd.Sum)
    _, dense_mean = compute()
    densified, _ = compute(sparse_as_dense=True)
    return {
        "stays sparse": isinstance(sparse_sum, tf.IndexedSlices),
        "equal rows are sent once": int(tf.size(sparse_sum.indices)) == 4,
        "sum": bool(np.allclose(dense_sum, expected)),
        "average": bool(np.allclose(dense_mean, expected / 2)),
        "sparse_as_dense": isinstance(densified, tf.Tensor) and bool(np.allclose(densified, expected / 2)),
    }


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_issue_3328_sparse_gradients(mode):
    for result in run("tensorflow", sparse, mode):
        assert all(result.values()), result


def partial():
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow as hvd

    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential(
        [tf.keras.layers.Input((2,)), tf.keras.layers.Dense(3), tf.keras.layers.Dense(1)]
    )
    x = tf.ones([4, 2]) * (hvd.rank() + 1)

    def gradients(wrap):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x))
        return wrap(tape).gradient(loss, model.trainable_variables)

    own = gradients(lambda tape: tape)
    got = gradients(lambda tape: hvd.PartialDistributedGradientTape(tape, local_layers=model.layers[0]))
    lazily = (layer for layer in model.layers[:1])
    again = gradients(lambda tape: hvd.PartialDistributedGradientTape(tape, local_layers=lazily))
    assert all(np.allclose(a, b) for a, b in zip(again, got))
    mean = [hvd.allreduce(g) for g in own]
    return [bool(np.allclose(g, o / 2)) for g, o in zip(got[:2], own)] + [
        bool(np.allclose(g, m)) for g, m in zip(got[2:], mean[2:])
    ]


def test_partial_tape_leaves_a_layer_local():
    assert run("tensorflow", partial) == [[True] * 4] * 2


def repeated():
    """A tape is wrapped anew at every step; neither graphs nor memory may grow with the steps."""
    import resource

    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.tensorflow import _reduction

    v = tf.Variable(tf.ones([1000]))

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(v * v)
        hvd.DistributedGradientTape(tape).gradient(loss, [v])

    for _ in range(50):
        step()
    graphs, before = len(_reduction._graphs), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(500):
        step()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return len(_reduction._graphs) - graphs, grown < 20_000


def test_issue_1501_eager_tape_does_not_leak():
    assert run("tensorflow", repeated) == [(0, True)] * 2
