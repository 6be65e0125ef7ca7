# SPDX-License-Identifier: Apache-2.0
"""Large outputs of nodes: in the input's memory where TensorFlow lets go of it, else in kept memory."""

from __future__ import annotations

from tf_worlds import run


def kept_by_the_caller():
    """The caller keeps its tensor and some results: none of them may change under it."""
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow as hvd

    step = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="kept.large"))
    given = tf.ones([2 << 20])  # 8 MiB
    wrong, held, addresses = [], [], []
    for i in range(12):
        x = given * float(i)
        result = step(x)
        addresses.append(result.numpy().ctypes.data)
        held = [*held[-1:], (i, result)]
        wrong += [i for k, r in held if not (r.numpy() == 2.0 * k).all()]
        if not (x.numpy() == float(i)).all():
            wrong.append(-i)
    view = held[-1][1].numpy()[5:10]  # shares the tensor's memory
    held.clear()
    del result
    for _ in range(4):
        step(given)
    # Two results are alive at a time; once TensorFlow has refused the input's memory thrice, three blocks do.
    return wrong, bool(np.all(view == 22.0)), len(set(addresses[4:])) <= 3


def test_results_of_arguments_use_memory_again_but_never_what_is_held():
    assert run("tensorflow", kept_by_the_caller) == [([], True, True)] * 2


def temporaries():
    """Gradients that nobody else holds, and outputs whose size comes late."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    @tf.function
    def step(x):
        reduced = hvd.allreduce(x * 3.0, op=hvd.Sum, name="temporary.large")
        gathered = hvd.allgather(x, name="gathered.large")
        some = hvd.broadcast(x * (hvd.rank() + 1.0), 1, name="broadcast.large")
        return reduced + 1.0, gathered, some

    wrong = []
    for i in range(6):
        x = tf.fill([2 << 20], float(i))
        reduced, gathered, some = step(x)
        values = [(reduced, 6.0 * i + 1.0), (gathered, float(i)), (some, 2.0 * i)]
        wrong += [(i, k) for k, (t, v) in enumerate(values) if not (t.numpy() == v).all()]
    return wrong, gathered.shape[0] == 4 << 20


def test_results_of_temporaries_and_of_late_sizes_are_right():
    assert run("tensorflow", temporaries) == [([], True)] * 2
