# SPDX-License-Identifier: Apache-2.0
"""Small gradients share a node, and nobody can tell but by the time it takes."""

from __future__ import annotations

from tf_worlds import run


def all_kinds(compression):
    """Gradients of all kinds, in bundles and with a node each: whether they are right, nodes and names."""
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.common import bundles, observation

    me = hvd.rank()
    rows = tf.fill([3], 7.0)
    dense = {0: tf.constant([1.0, 2.0]), 1: tf.constant(3.0, tf.float64), 2: tf.ones([40000]),
             3: tf.constant([[4.0]], tf.bfloat16), 6: tf.zeros([0]), 7: rows}  # fmt: skip
    sparse = tf.IndexedSlices(tf.constant([[5.0 + me]]), tf.constant([me]), tf.constant([2, 1]))

    def in_nodes(scope, most):
        reduce = hvd._make_allreduce_grads_fn(
            scope, "", "", getattr(hvd.Compression, compression), op=hvd.Sum
        )

        @tf.function(input_signature=[tf.TensorSpec([None])])
        def step(unknown):
            own = {**dense, 7: unknown}  # its size is not known before the graph runs
            return reduce([g * (1 + me) for g in own.values()] + [None, sparse])

        kept, bundles.SMALL = bundles.SMALL, most
        try:
            *sums, nothing, gathered = step(rows)
        finally:
            bundles.SMALL = kept
        right = [r.dtype == g.dtype and np.array_equal(r, 3 * g) for g, r in zip(dense.values(), sums)]
        right += [nothing is None, np.array_equal(tf.convert_to_tensor(gathered), [[5.0], [6.0]])]
        operations = step.get_concrete_function().graph.get_operations()
        types = sorted(o.type for o in operations if o.type.startswith("HorovodAllreduce"))
        names = {one["name"] for one in observation.recent()}
        of_scope = [n for n in names if n.startswith(f"{scope}_Allreduce/Horovod") and "Size" not in n]
        return right, types, sorted(n.replace(scope, "") for n in of_scope)

    return in_nodes(f"Shared_{compression}", bundles.SMALL), in_nodes(f"Split_{compression}", -1)


def test_gradients_of_all_kinds_with_and_without_bundles():
    for compression in ("none", "fp16"):
        for bundled, split in run("tensorflow", all_kinds, compression):
            assert bundled[0] == split[0] == [True] * 8
            # The large one, the one of unknown size and, for the sparse one, what all ranks choose.
            assert bundled[1] == [*["HorovodAllreduce"] * 3, "HorovodAllreduceEach"]
            assert split[1] == ["HorovodAllreduce"] * 7
            assert bundled[2] == split[2] and len(split[2]) == 6, (bundled[2], split[2])


def bundled_by_one():
    """Rank 0 has a node for each gradient, rank 1 one for all; and one of them differs now and then."""
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.common import bundles

    me = hvd.rank()
    reduce = hvd._make_allreduce_grads_fn("One", op=hvd.Average)

    @tf.function
    def step(some):
        return reduce([g * (1.0 + me) for g in some], use_generic_names=True)

    def gradients(rows):
        return [tf.ones([2]), tf.fill([rows], 2.0), tf.fill([3, 2], 3.0)]

    kept, bundles.SMALL = bundles.SMALL, -1 if me == 0 else bundles.SMALL
    try:
        texts = []
        for _ in range(3):
            right = [np.array_equal(r, 1.5 * g) for g, r in zip(gradients(4), step(gradients(4)))]
            try:
                step(gradients(4 + me))
            except tf.errors.FailedPreconditionError as error:
                texts.append(str(error))
    finally:
        bundles.SMALL = kept
    return right, texts


def test_ranks_need_not_share_alike_and_a_mismatch_names_the_tensor():
    for right, texts in run("tensorflow", bundled_by_one):
        assert right == [True] * 3
        assert len(texts) == 3
        for text in texts:
            assert "Mismatched ALLREDUCE tensor shapes" in text and "grad_1" in text, text


def twice():
    """One function with a tape, called twice in a step; and the derivative of reduced gradients."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    variables = [tf.Variable([1.0, 2.0]), tf.Variable(3.0)]

    @tf.function
    def inner(scale):
        with tf.GradientTape() as tape:
            loss = scale * tf.add_n([tf.reduce_sum(v * v * v) for v in variables])
        return hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(loss, variables)

    @tf.function
    def outer(scale):
        with tf.GradientTape() as tape:
            first, second = inner(scale), inner(2.0 * scale)
            total = tf.add_n([tf.reduce_sum(g) for g in first])
        return first, second, tape.gradient(total, variables)

    first, second, curvature = outer(tf.constant(1.0 + hvd.rank()))
    used = {o.type for o in inner.get_concrete_function(tf.constant(1.0)).graph.get_operations()}
    return [
        [v.numpy().tolist() for v in values] for values in (first, second, curvature)
    ], "HorovodAllreduceEach" in used


def test_a_function_twice_in_a_step_and_second_derivatives():
    # 3 v^2 times 1 + 2 over both ranks; the derivative is 6 v, summed over both ranks, times the own scale.
    for values, used in run("tensorflow", twice):
        assert used
        assert values[0] == [[9.0, 36.0], 81.0] and values[1] == [[18.0, 72.0], 162.0]
    ones = [values[2] for values, _ in run("tensorflow", twice)]
    assert ones == [[[12.0, 24.0], 36.0], [[24.0, 48.0], 72.0]]
