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


def cached():
    """The graph of a tape outlives the set that it was traced for: ids are used again, objects are not."""
    import os

    import tensorflow as tf

    import horovod.tensorflow as hvd

    def gradient(members, rows):
        v = tf.Variable(tf.ones([rows]) * (hvd.rank() + 1))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(v * v)
        return hvd.DistributedGradientTape(tape, process_set=members).gradient(loss, [v])[0].numpy().tolist()

    os.environ["HOROVOD_ELASTIC"] = "1"  # sets of one rank reduce too: they may have more members tomorrow
    try:
        results = []
        for rows, end in ((1, "removed"), (2, "shut down"), (3, "removed")):
            each = [hvd.add_process_set([0]), hvd.add_process_set([1])]
            results.append(gradient(each[hvd.rank()], rows))
            if end == "removed":
                for one in each:
                    hvd.remove_process_set(one)
            else:
                hvd.barrier()  # who shuts down ends the job for all, also for who still reduces
                hvd.shutdown()
                hvd.init()
        return results
    finally:
        del os.environ["HOROVOD_ELASTIC"]


def test_graphs_do_not_hold_process_sets_that_are_gone():
    expected = [[[2.0 * rank] * rows for rows in (1, 2, 3)] for rank in (1, 2)]
    assert run("tensorflow", cached) == expected


def unknown():
    import tensorflow as tf

    import horovod.tensorflow as hvd

    stale = hvd.ProcessSet([0, 1])
    stale.process_set_id = 77
    x, texts = tf.ones([2]), []
    for call in (
        lambda: hvd.allreduce(x, process_set=stale),
        lambda: hvd.grouped_allreduce([x], process_set=stale),
        lambda: tf.function(hvd.allreduce)(x, process_set=stale),
    ):
        try:
            call()
        except ValueError as error:
            texts.append("Process set does not exist or has not been registered." in str(error))
    return texts


def test_allreduce_on_a_process_set_with_an_unknown_id_is_a_value_error():
    assert run("tensorflow", unknown) == [[True] * 3] * 2
