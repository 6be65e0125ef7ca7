# SPDX-License-Identifier: Apache-2.0
"""How nodes run: without blocking TensorFlow's threads, in any order, fused, also when nobody reads them."""

from __future__ import annotations

from tf_worlds import run


def opposite_orders():
    """More tensors than threads, started in opposite orders: blocking kernels would wait for ever."""
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.tensorflow import _library

    count = 64

    def build(order):
        @tf.function
        def step(x):
            results = {}
            previous = []
            for i in order:
                with tf.control_dependencies(previous):
                    value = x * float(i)
                previous = [value]
                results[i] = hvd.allreduce(value, op=hvd.Sum, name=f"t{i}")
            return [results[i] for i in range(count)]

        return step

    step = build(range(count) if hvd.rank() == 0 else range(count - 1, -1, -1))
    for _ in range(5):
        values = step(tf.constant(1.0))
    return bool(np.allclose(values, [2.0 * i for i in range(count)])), _library.kernels_defer()


def test_opposite_orders_do_not_deadlock():
    assert run("tensorflow", opposite_orders) == [(True, True)] * 2


def by_pair():
    """A TensorFlow whose done callbacks cannot be moved: one wait for all gradients, on one thread."""
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.tensorflow import _library

    me = hvd.rank()
    variables = [tf.Variable(tf.ones([3]) * i) for i in range(64)]
    table = tf.Variable(tf.zeros([4, 2]))
    _library.refuse_to_defer(True)
    try:

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                loss = tf.add_n([tf.reduce_sum(v * v) for v in variables]) * (me + 1.0)
                loss += tf.reduce_sum(tf.gather(table, [me])) * 2.0
            tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.bf16)
            return tape.gradient(loss, [*variables, table])

        for _ in range(5):
            *gradients, sparse = step()
        used = {o.type for o in step.get_concrete_function().graph.get_operations()}
        right = all(np.allclose(g, 3.0 * i) for i, g in enumerate(gradients))
        dense = tf.convert_to_tensor(sparse).numpy().tolist()

        @tf.function
        def wrong():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(variables[0][: 1 + me])
            return hvd.DistributedGradientTape(tape, process_set=Unknown()).gradient(loss, [variables[0]])

        try:
            wrong()
            refused = False
        except tf.errors.InvalidArgumentError as error:
            refused = "Process set provided does not exist" in str(error)
    finally:
        _library.refuse_to_defer(False)
    return {
        "right": right,
        "sparse": dense == [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.0]],
        "pair used": {"HorovodEnqueueAllreduce", "HorovodWait"} <= used and "HorovodAllreduce" not in used,
        "errors": refused,
        "back": _library.kernels_defer(),
    }


class Unknown:
    process_set_id = 99
    ranks = [0, 1]

    def included(self):
        return True

    def size(self):
        return 2


def test_without_movable_callbacks_gradients_share_one_waiting_thread():
    for results in run("tensorflow", by_pair):
        assert all(results.values()), results


def fused():
    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.common.basics import basics

    v = [tf.Variable(tf.ones([64])) for _ in range(160)]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(x * x) for x in v])
        return hvd.DistributedGradientTape(tape).gradient(loss, v)

    step()
    seen = [basics.metrics()]
    for _ in range(20):
        step()
        seen.append(basics.metrics())
    return [{key: b[key] - a[key] for key in ("tensors", "batches")} for a, b in zip(seen, seen[1:])]


def test_a_step_of_160_gradients_is_fused():
    """In steps in which the threads that compute are kept from running, there are more batches."""
    for steps in run("tensorflow", fused):
        assert sum(one["tensors"] for one in steps) >= 160 * len(steps)
        assert min(one["batches"] for one in steps) < 160 / 4, steps


def kept():
    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.common.basics import basics

    @tf.function
    def step(x):
        hvd.allreduce(x, name="nobody_reads_this")
        same = [hvd.allreduce(x, op=hvd.Sum), hvd.allreduce(x, op=hvd.Sum)]
        constant = hvd.allreduce(tf.constant(1.0), op=hvd.Sum)
        return same, constant

    operations = step.get_concrete_function(tf.constant(1.0)).graph.get_operations()
    ordered = [o.name for o in operations if o.type == "HorovodAllreduce" and o.control_inputs]
    step(tf.constant(1.0))
    before = basics.metrics()["tensors"]
    _, constant = step(tf.constant(1.0))
    return basics.metrics()["tensors"] - before, float(constant), ordered


def test_nodes_are_neither_dropped_nor_merged_nor_folded_nor_put_in_order():
    assert run("tensorflow", kept) == [(4, 2.0, [])] * 2


def named():
    """The same function twice in one step: names must not collide."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    @tf.function
    def inner(x):
        return hvd.allreduce(x, op=hvd.Sum, name="x")

    @tf.function
    def outer(x):
        return inner(x) + inner(2 * x)

    return float(outer(tf.constant(1.0)))


def test_issue_784_one_function_called_twice_in_a_step():
    assert run("tensorflow", named) == [6.0, 6.0]


def again():
    """The same nodes with other shapes every time, and between two good runs one that fails."""
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow as hvd

    me = hvd.rank()
    rows = tf.TensorSpec([None, 2], tf.float32)

    @tf.function(input_signature=[rows, rows, tf.TensorSpec([None], tf.int32)])
    def step(x, y, splits):
        alone = hvd.allreduce(x, op=hvd.Sum, name="alone")
        group = hvd.grouped_allreduce([x, y], op=hvd.Sum, name="group")
        gathered = hvd.allgather(y, name="gathered")
        sent, received = hvd.alltoall(y, splits, name="sent")
        return alone, group, gathered, sent, received

    def right(n):
        x, y = tf.fill([n, 2], 1.0 + me), tf.fill([n + me, 2], 10.0 * (1 + me))
        alone, group, gathered, sent, received = step(x, x, tf.constant([1, n - 1]))
        good = np.array_equal(alone, np.full([n, 2], 3.0)) and all(np.array_equal(g, alone) for g in group)
        good &= np.array_equal(gathered, np.repeat([[1.0, 1.0], [2.0, 2.0]], n, axis=0))
        good &= received.numpy().tolist() == ([1, 1] if me == 0 else [n - 1, n - 1])
        good &= sent.shape[0] == sum(received.numpy())
        try:
            step(y, y, tf.constant([0, n + me]))  # as many rows as the rank says
        except tf.errors.FailedPreconditionError as error:
            return bool(good) and "Mismatched ALLREDUCE tensor shapes" in str(error)
        return False

    return [right(n) for n in (3, 1, 5, 2)]


def test_nodes_run_again_with_other_shapes_and_after_failures():
    assert run("tensorflow", again) == [[True] * 4] * 2


def followers():
    """What comes right after nodes of several tensors, and whether the values are theirs."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    reduce = hvd._make_allreduce_grads_fn("Followers", op=hvd.Sum)
    tensors = [tf.fill([n], float(n)) for n in range(1, 5)]

    @tf.function
    def step(some):
        return reduce(some), hvd.grouped_allreduce(some, op=hvd.Sum), hvd.grouped_allgather(some)

    *sums, gathered = step(tensors)
    operations = step.get_concrete_function(tensors).graph.get_operations()
    after = {
        node.type: sorted({follower.type for output in node.outputs for follower in output.consumers()})
        for node in operations
        if node.type.startswith("Horovod") and len(node.outputs) > 1
    }
    right = [(own == 2 * t).numpy().all() for kind in sums for own, t in zip(kind, tensors)]
    right += [g.shape[0] == 2 * t.shape[0] for g, t in zip(gathered, tensors)]
    eager = hvd.grouped_allreduce(tensors, op=hvd.Sum)
    right += [(own == 2 * t).numpy().all() for own, t in zip(eager, tensors)]
    return all(right), after


def test_what_follows_several_tensors_goes_on_from_one_node():
    several = ("HorovodAllreduceEach", "HorovodGroupedAllgather", "HorovodGroupedAllreduce")
    assert run("tensorflow", followers) == [(True, {node: ["IdentityN"] for node in several})] * 2
