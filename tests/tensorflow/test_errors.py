# SPDX-License-Identifier: Apache-2.0
"""Every error: its class, its text, and that the ranks go on afterwards."""

from __future__ import annotations

import os
import subprocess
import sys

from tf_worlds import run


def mistakes():
    import tensorflow as tf

    import horovod.tensorflow as hvd

    me = hvd.rank()
    texts = {}

    def fails(what, error, call):
        for mode, run_it in (("eager", call), ("function", tf.function(call))):
            try:
                run_it()
            except error as raised:
                texts[f"{what} {mode}"] = str(raised)
            else:
                texts[f"{what} {mode}"] = "no error"

    precondition, invalid = tf.errors.FailedPreconditionError, (tf.errors.InvalidArgumentError, ValueError)
    two = tf.ones([2 + me])
    fails("shape", precondition, lambda: hvd.allreduce(two, name="shape"))
    fails(
        "dtype",
        precondition,
        lambda: hvd.allreduce(tf.cast(two[:2], [tf.int32, tf.float32][me]), name="dtype"),
    )
    fails("root", precondition, lambda: hvd.broadcast(two[:2], me, name="root"))
    fails("op", precondition, lambda: hvd.allreduce(two[:2], op=[hvd.Sum, hvd.Max][me], name="op"))
    fails("kind", precondition, lambda: (hvd.allreduce if me else hvd.allgather)(two[:2], name="kind"))
    fails("scalar gather", precondition, lambda: hvd.allgather(tf.constant(1.0), name="scalar"))
    fails("scalar scatter", invalid, lambda: hvd.reducescatter(tf.constant(1.0), name="scatter"))
    fails("splits sum", invalid, lambda: hvd.alltoall(two, splits=[5, 5], name="sum"))
    fails("splits count", invalid, lambda: hvd.alltoall(two, splits=[1], name="count"))
    fails("no such set", invalid, lambda: hvd.allgather(two, process_set=FakeSet()))
    fails("scatter op", tf.errors.AbortedError, lambda: hvd.reducescatter(two[:2], op=hvd.Max, name="scop"))
    after = float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="after"))
    return texts, after


class FakeSet:
    process_set_id = 99


def test_every_mistake_is_an_error_on_every_rank():
    expected = {
        "shape": "Mismatched ALLREDUCE tensor shapes",
        "dtype": "Mismatched data types",
        "root": "Mismatched BROADCAST root ranks",
        "op": "Mismatched reduction operation",
        "kind": "Mismatched operations",
        "scalar gather": "rank-zero tensor",
        "scalar scatter": "HorovodReducescatter does not support scalar inputs.",
        "splits sum": "Sum of splits entries is greater than the first dimension of tensor.",
        "splits count": "Number of entries in splits does not equal number of workers.",
        "no such set": "Process set provided does not exist, or has not been registered.",
        "scatter op": "Reducescatter currently only supports AVERAGE and SUM.",
    }
    for texts, after in run("tensorflow", mistakes):
        wrong = {
            f"{what} {mode}": texts[f"{what} {mode}"]
            for what, text in expected.items()
            for mode in ("eager", "function")
            if text not in texts[f"{what} {mode}"]
        }
        assert not wrong
        assert after == 2.0


def unsupported():
    import tensorflow as tf

    import horovod.tensorflow as hvd

    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([4, 2]))
    errors = []
    for call in (
        lambda: hvd.allreduce(slices, op=hvd.Max),
        lambda: hvd.allreduce(slices, op=hvd.Adasum),
        lambda: hvd.grouped_allreduce([tf.constant([1, 2]), slices], op=hvd.Adasum),
        lambda: hvd.allreduce(slices, op=hvd.Sum, prescale_factor=2.0),
        lambda: hvd.allreduce(1.0, average=True, op=hvd.Sum),
        lambda: hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum, gradient_predivide_factor=2.0),
        lambda: hvd.DistributedGradientTape(tf.GradientTape(), groups=0),
        lambda: hvd.DistributedOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(1.0), op=hvd.Adasum, average_aggregated_gradients=True
        ),
        lambda: hvd.DistributedOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2
        ),
        lambda: hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=["no layer"]),
        lambda: hvd.broadcast_global_variables(0),
        lambda: hvd.allreduce(1.0, process_set=hvd.ProcessSet([0])),
        lambda: tf.function(hvd.barrier)(),
    ):
        try:
            call()
            errors.append("no error")
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
    return errors


def test_arguments_are_checked_before_anything_is_sent():
    expected = [
        "NotImplementedError: Only Sum and Average ops are supported with tf.IndexedSlices",
        "NotImplementedError: The Adasum reduction does not currently support sparse tensors.",
        "NotImplementedError: The Adasum reduction does not currently support sparse tensors.",
        "NotImplementedError: Pre/postscale_factor are not supported with tf.IndexedSlices",
        "ValueError: The op parameter supersedes average. Please provide only one of them.",
        "ValueError: gradient_predivide_factor not supported with op != Average",
        "ValueError: groups should be a non-negative integer or a list of list of tf.Variable.",
        "ValueError: Adasum does not support average_aggregated_gradients == True",
        "ValueError: backward_passes_per_step > 1 is not yet supported for _LegacyOptimizer with eager",
        "ValueError: All local layers must be of tf.keras.layers.Layer type.",
        "RuntimeError: hvd.broadcast_global_variables() does not support eager execution.",
        "TypeError: ProcessSet(process_set_id=None",
        "RuntimeError: in user code:",
    ]
    for errors in run("tensorflow", unsupported):
        assert [e[: len(x)] for e, x in zip(errors, expected)] == expected


def test_before_init_and_without_a_launcher():
    """Alone, a process is a world of one; before init every op says so."""
    script = """
import tensorflow as tf, horovod.tensorflow as hvd
try:
    hvd.allreduce(tf.ones([2]))
except tf.errors.FailedPreconditionError as error:
    assert "Horovod has not been initialized; use hvd.init()." in str(error)
try:
    hvd.rank()
except ValueError as error:
    assert "Horovod has not been initialized; use hvd.init()." in str(error)
for _ in range(2):
    hvd.init()
    assert (hvd.rank(), hvd.size()) == (0, 1)
    assert hvd.allreduce(tf.constant([3.0])).numpy() == 3.0
    assert int(hvd.join()) == 0
    hvd.shutdown()
print("fine")
"""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    env = {**os.environ, "PYTHONPATH": root, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=600
    )
    assert done.stdout.strip() == "fine", done.stderr[-2000:]
