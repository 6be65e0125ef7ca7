# SPDX-License-Identifier: Apache-2.0
"""Every collective, dtype and way of running a graph, against plain NumPy. Each test is one call into a world
that runs a whole grid and returns what was wrong."""

from __future__ import annotations

import pytest
from tf_worlds import run

NUMBERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
NUMBERS += ["float16", "bfloat16", "float32", "float64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
SHAPES = [(), (0,), (1,), (17,), (4, 3), (2, 3, 5)]
MODES = ["eager", "function", "session"]


def inputs(dtype, shape, size, seed=0):
    """The arrays of all ranks, the same computation on every rank."""
    import ml_dtypes
    import numpy as np

    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    arrays = []
    for rank in range(size):
        random = np.random.default_rng(100 * seed + rank)
        if kind == np.bool_:
            arrays.append(random.integers(0, 2, shape).astype(bool))
        elif kind.kind in "iu":
            arrays.append(random.integers(0, 9, shape).astype(kind))
        else:
            arrays.append(np.asarray(random.normal(size=shape) * 2).astype(kind))
    return arrays


def evaluate(mode, function, *arrays):
    """function(*tensors) run eagerly, in a tf.function, or in a TF1 session; results as NumPy arrays."""
    import tensorflow as tf

    if mode == "eager":
        return tf.nest.map_structure(lambda t: t.numpy(), function(*[tf.constant(a) for a in arrays]))
    if mode == "function":
        return tf.nest.map_structure(
            lambda t: t.numpy(), tf.function(function)(*[tf.constant(a) for a in arrays])
        )
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        holders = [tf.compat.v1.placeholder(a.dtype, a.shape) for a in arrays]
        return session.run(function(*holders), dict(zip(holders, arrays)))


def reductions(mode, dtypes):
    import itertools

    import reference

    import horovod.tensorflow as hvd

    wrong = []
    ops = [hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product]
    for dtype, shape, op in itertools.product(dtypes, SHAPES, ops):
        arrays = inputs(dtype, shape, hvd.size(), seed=op)
        mine = arrays[hvd.rank()]
        expected = reference.allreduce(arrays, op)[0]
        got = evaluate(mode, lambda t, op=op: hvd.allreduce(t, op=op, name="t"), mine)
        if got.dtype != expected.dtype or not reference_close(got, expected):
            wrong.append((dtype, shape, op, got, expected))
        grouped = evaluate(mode, lambda a, b, op=op: hvd.grouped_allreduce([a, b], op=op), mine, mine)
        if not all(reference_close(g, expected) for g in grouped):
            wrong.append(("grouped", dtype, shape, op, grouped, expected))
    return wrong


def reference_close(got, expected):
    import numpy as np

    if got.shape != expected.shape:
        return False
    half = got.dtype.name in ("float16", "bfloat16")
    return np.allclose(
        got.astype("float64"),
        expected.astype("float64"),
        rtol=2e-2 if half else 1e-5,
        atol=2e-2 if half else 1e-5,
    )


@pytest.mark.parametrize("mode", MODES)
def test_reductions(mode):
    dtypes = NUMBERS if mode == "eager" else ["int32", "bfloat16", "float32"]
    assert run("tensorflow", reductions, mode, dtypes) == [[], []]


def movements(mode, dtypes):
    """allgather, broadcast, alltoall and reducescatter, which do not change values, on every dtype."""
    import numpy as np
    import reference

    import horovod.tensorflow as hvd

    wrong = []

    def check(what, got, expected):
        if got.dtype != expected.dtype or got.shape != expected.shape or not np.array_equal(got, expected):
            wrong.append((what, got, expected))

    size, rank = hvd.size(), hvd.rank()
    for dtype in dtypes:
        for trailing in [(), (3,), (2, 2)]:
            ragged = [a[: 2 + r] for r, a in enumerate(inputs(dtype, (5, *trailing), size))]
            whole = reference.allgather(ragged)[0]
            check("allgather", evaluate(mode, lambda t: hvd.allgather(t, name="ag"), ragged[rank]), whole)
            pair = evaluate(mode, lambda t: hvd.grouped_allgather([t, t], name="gag"), ragged[rank])
            check("grouped_allgather", pair[0], whole)
            check("grouped_allgather", pair[1], whole)
            arrays = inputs(dtype, (4, *trailing), size, seed=2)
            for root in range(size):
                check(
                    "broadcast",
                    evaluate(mode, lambda t, root=root: hvd.broadcast(t, root, name="bc"), arrays[rank]),
                    arrays[root],
                )
            rows = [[1, 3], [2, 0]]
            expected, received = reference.alltoall(arrays, rows)[rank]
            got, splits = evaluate(
                mode, lambda t, rows=rows: hvd.alltoall(t, splits=rows[rank], name="a2a"), arrays[rank]
            )
            check("alltoall", got, expected)
            check("received_splits", splits, np.array(received, np.int32))
            check(
                "alltoall even",
                evaluate(mode, lambda t: hvd.alltoall(t, name="even"), arrays[rank]),
                reference.alltoall(arrays)[rank][0],
            )
        empty = [np.zeros((0, 2), arrays[0].dtype), np.ones((3, 2), arrays[0].dtype)]
        check("empty rows", evaluate(mode, lambda t: hvd.allgather(t, name="e"), empty[rank]), empty[1])
    return wrong


@pytest.mark.parametrize("mode", MODES)
def test_movements(mode):
    dtypes = [*NUMBERS, "bool"] if mode == "eager" else ["int64", "bool", "float32"]
    assert run("tensorflow", movements, mode, dtypes) == [[], []]


def scatters(mode):
    import reference

    import horovod.tensorflow as hvd

    wrong = []
    for dtype in ["int32", "int64", *FLOATS]:
        for op in [hvd.Average, hvd.Sum]:
            for shape in [(5,), (4, 3), (1, 2)]:
                arrays = inputs(dtype, shape, hvd.size(), seed=3)
                mine = arrays[hvd.rank()]
                expected = reference.reducescatter(arrays, op)[hvd.rank()]
                got = evaluate(mode, lambda t, op=op: hvd.reducescatter(t, op=op, name="rs"), mine)
                both = evaluate(mode, lambda t, op=op: hvd.grouped_reducescatter([t, t], op=op), mine)
                if not all(reference_close(g, expected) for g in [got, *both]):
                    wrong.append((dtype, op, shape, got, expected))
    return wrong


@pytest.mark.parametrize("mode", MODES)
def test_reducescatter(mode):
    assert run("tensorflow", scatters, mode) == [[], []]


def scaled():
    import reference

    import horovod.tensorflow as hvd

    wrong = []
    for dtype in ["int32", "float32", "float64", "bfloat16"]:
        for before, after in [(0.5, 1.0), (1.0, 3.0), (0.25, 2.0)]:
            arrays = inputs(dtype, (6,), hvd.size(), seed=4)
            expected = reference.allreduce(arrays, hvd.Sum, before, after)[0]
            got = evaluate(
                "eager",
                lambda t, before=before, after=after: hvd.allreduce(
                    t, op=hvd.Sum, prescale_factor=before, postscale_factor=after, name="scaled"
                ),
                arrays[hvd.rank()],
            )
            if not reference_close(got, expected):
                wrong.append((dtype, before, after, got, expected))
    return wrong


def test_scale_factors():
    assert run("tensorflow", scaled) == [[], []]


def compressed():
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow as hvd

    x = tf.constant([0.1, 1000.0]) * (hvd.rank() + 1)
    results = {}
    for name in ("none", "fp16", "bf16"):
        got = hvd.allreduce(x, op=hvd.Sum, compression=getattr(hvd.Compression, name))
        results[name] = (got.dtype.name, bool(np.allclose(got, [0.3, 3000.0], rtol=1e-2)))
        (pair,) = hvd.grouped_allreduce([x], op=hvd.Sum, compression=getattr(hvd.Compression, name))
        assert np.allclose(pair, [0.3, 3000.0], rtol=1e-2)
    integer = hvd.allreduce(tf.constant([1]), op=hvd.Sum, compression=hvd.Compression.fp16)
    assert integer.dtype == tf.int32
    return results


def test_compression_keeps_the_dtype():
    expected = {name: ("float32", True) for name in ("none", "fp16", "bf16")}
    assert run("tensorflow", compressed) == [expected, expected]


def queries():
    import tensorflow as tf

    import horovod.tensorflow as hvd

    @tf.function
    def ask():
        return [
            hvd.rank_op(),
            hvd.size_op(),
            hvd.local_rank_op(),
            hvd.local_size_op(),
            hvd.process_set_included_op(0),
            hvd.size_op(77),
            hvd.process_set_included_op(77),
        ]

    return [int(v) for v in ask()]


def test_queries_in_a_graph():
    assert run("tensorflow", queries) == [[0, 2, 0, 2, 1, -3, -3], [1, 2, 1, 2, 1, -3, -3]]


def joined():
    import tensorflow as tf

    import horovod.tensorflow as hvd

    totals = []
    for step in range(3 + 2 * hvd.rank()):  # rank 1 has two batches more
        totals.append(float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name=f"step{step}")))
    return totals, int(hvd.join())


def test_join_with_uneven_data():
    assert run("tensorflow", joined) == [([2.0] * 3, 1), ([2.0] * 3 + [1.0] * 2, 1)]


def registered_kernels():
    """For each of our ops: device -> arguments in host memory."""
    from tensorflow.python.framework import kernels

    import horovod.tensorflow as hvd

    hvd.allreduce([1.0], op=hvd.Sum)  # maps the library
    found = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.op.startswith("Horovod"):
            found.setdefault(kernel.op, {})[kernel.device_type] = sorted(kernel.host_memory_arg)
    return found


def test_kernels_for_gpus_take_host_memory():
    """They are the ones for CPUs. TensorFlow copies for them, and tf.device("/GPU:0") finds them."""
    for found in run("tensorflow", registered_kernels):
        assert found["HorovodAllreduce"] == {"CPU": [], "GPU": ["sum", "tensor"]}
        assert found["HorovodAlltoall"]["GPU"] == ["output", "received_splits", "splits", "tensor"]
        assert all(set(devices) == {"CPU", "GPU"} for devices in found.values()), found
