# SPDX-License-Identifier: Apache-2.0
"""Collectives of a part of the ranks."""

from __future__ import annotations

from tf_worlds import run


def sets():
    import tensorflow as tf

    import horovod.tensorflow as hvd

    me = hvd.rank()
    each = [hvd.add_process_set([0]), hvd.add_process_set([1])]
    mine, other = each[me], each[1 - me]
    x = tf.constant([1.0, 2.0]) * (me + 1)
    results = {
        "alone": hvd.allreduce(x, op=hvd.Sum, process_set=mine, name="alone").numpy().tolist()
        == x.numpy().tolist(),
        "gather": hvd.allgather(x, process_set=mine, name="gather").shape == (2,),
        "root is a global rank": hvd.broadcast(x, me, process_set=mine, name="root").shape == (2,),
        "size op": (
            int(hvd.size_op(mine.process_set_id)),
            int(hvd.process_set_included_op(mine.process_set_id)),
        )
        == (1, 1),
        "not included": int(hvd.process_set_included_op(other.process_set_id)) == 0,
    }
    v = tf.Variable(x)
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_sum(v * v)
    only0 = hvd.DistributedGradientTape(tape, process_set=each[0]).gradient(loss, [v])[0]
    results["tape of members and others"] = only0.numpy().tolist() == (2 * x).numpy().tolist()
    try:
        hvd.allreduce(x, process_set=other, name="foreign")
        results["foreign"] = False
    except tf.errors.InvalidArgumentError as error:
        results["foreign"] = f"Rank {me} is not a member of the provided process set." in str(error)
    results["removed"] = all([hvd.remove_process_set(s) for s in each])
    return results


def test_process_sets():
    for result in run("tensorflow", sets):
        assert all(result.values()), result
