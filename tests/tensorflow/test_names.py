# SPDX-License-Identifier: Apache-2.0
"""Names: the life cycle's in every front end, and private ones that other libraries use."""

from __future__ import annotations

from tf_worlds import run

ALSO = {
    "horovod.tensorflow": (
        "BroadcastGlobalVariablesHook broadcast_ broadcast_global_variables broadcast_object_fn join rank_op "
        "size_op PartialDistributedGradientTape SyncBatchNormalization grouped_reducescatter"
    ),
    "horovod.tensorflow.keras": "DistributedOptimizer broadcast_global_variables load_model elastic join",
    "horovod.keras": "PartialDistributedOptimizer Compression broadcast_global_variables reducescatter join",
}


def missing(also):
    import importlib

    from horovod.common import lifecycle

    absent = []
    for module, names in also.items():
        front_end = importlib.import_module(module)
        listed = set(front_end.__all__)
        absent += [f"{module}.{n}" for n in [*lifecycle.__all__, *names.split()] if not hasattr(front_end, n)]
        absent += [f"{module}.__all__: {n}" for n in lifecycle.__all__ if n not in listed]
    return absent


def test_every_front_end_has_the_names_of_the_life_cycle():
    assert run("tensorflow", missing, ALSO) == [[], []]


def private():
    import tensorflow as tf

    import horovod.tensorflow as hvd

    optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))
    reduce = hvd._make_allreduce_grads_fn(
        "Mine", "", "", hvd.Compression.none, False, hvd.Sum, 1.0, None, process_set=hvd.global_process_set
    )
    v = tf.Variable([1.0])
    gradients = [tf.constant([1.0 + hvd.rank()]), None]
    return (
        isinstance(optimizer, hvd._LegacyOptimizer),
        [None if g is None else float(g[0]) for g in reduce(gradients, [v, v])],
        [None if g is None else float(g[0]) for g in reduce(gradients, use_generic_names=True)],
        hvd.broadcast.__defaults__[1],
    )


def test_private_names_that_libraries_use_work():
    assert run("tensorflow", private) == [(True, [3.0, None], [3.0, None], False)] * 2
