# SPDX-License-Identifier: Apache-2.0
"""After the first batch all ranks have the root's weights, in every mode of every Keras."""

from __future__ import annotations

import pytest
from tf_worlds import front_end, run

MODES = [
    ("tensorflow", {}),
    ("tensorflow", {"run_eagerly": True}),
    ("torch", {}),
    ("jax", {}),
    ("tf_keras", {}),
    ("tf_keras", {"run_eagerly": True}),
    ("tf1_graph", {}),
]


def first_batch(root, compile_options):
    """Weights and optimizer state before and after the first two batches, of both ranks; and warnings."""
    import warnings

    import numpy as np

    from horovod._keras import variables
    from horovod.common.objects import allgather_object

    keras, hvd, optimizers = front_end()
    me = hvd.rank()
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
    random = np.random.default_rng(me)  # other weights on other ranks
    model.set_weights([random.normal(size=w.shape) for w in model.get_weights()])
    model.compile(hvd.DistributedOptimizer(optimizers.Adam(0.1)), "mse", **compile_options)
    seen = {}

    class Recorder(keras.callbacks.Callback):
        def note(self, what):
            every = variables.of_all(self.model, self.model.optimizer)
            seen.setdefault(what, [np.asarray(v).tolist() for v in variables.read(every)])

        def on_train_batch_begin(self, batch, logs=None):
            if batch < 2:
                self.note(f"before {batch}")

        def on_train_batch_end(self, batch, logs=None):
            if batch < 2:
                self.note(f"after {batch}")
            hvd.barrier()  # if the ranks compare their weights, the next step knows the answer

    x, y = np.ones((24, 3), np.float32) * (me + 1), np.zeros((24, 1), np.float32)
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(root)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, y, batch_size=4, verbose=0, shuffle=False, callbacks=[callback, Recorder()])
    said = [str(w.message) for w in caught if "weights differ" in str(w.message)]
    return {what: allgather_object(values) for what, values in seen.items()}, said


@pytest.mark.parametrize("kind, options", MODES, ids=[f"{k}{'-eager' if o else ''}" for k, o in MODES])
def test_all_ranks_have_the_weights_of_the_root_after_the_first_batch(kind, options):
    for seen, said in run(kind, first_batch, 1, options):
        assert said == []
        own, roots = seen["before 0"]
        assert (
            own != roots
        )  # no earlier than at the batch's end: a patched callback may still want to be asked
        for moment in ("after 0", "before 1", "after 1"):
            own, roots = seen[moment]
            assert own == roots, moment
            assert len(own) >= 9  # four weights, two moments of each, a counter


def global_variables():
    import numpy as np

    from horovod.common.objects import allgather_object

    keras, hvd, _ = front_end()
    import horovod.keras as hvd_keras

    keras.backend.clear_session()  # what other tests left in the graph is not alike on all ranks
    outcomes = []
    for front in (hvd, hvd_keras):
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
        model.set_weights([np.full(w.shape, hvd.rank() + 1.0) for w in model.get_weights()])
        front.broadcast_global_variables(1)
        everybody = allgather_object([w.tolist() for w in model.get_weights()])
        outcomes.append(everybody[0] == everybody[1] and everybody[0][1] == [2.0])
    return outcomes


def test_broadcast_global_variables_happens_in_the_session_of_keras():
    assert run("tf1_graph", global_variables) == [[True, True]] * 2


def refused():
    errors = []
    keras, hvd, optimizers = front_end()
    for call in (
        lambda: hvd.broadcast_global_variables(0),
        lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)) and None,
    ):
        try:
            errors.append(call())
        except (RuntimeError, ValueError) as error:
            errors.append(str(error))
    return errors


@pytest.mark.parametrize("kind", ["torch", "tf_keras"])
def test_broadcast_global_variables_says_what_to_use_in_eager_mode(kind):
    for text, _ in run(kind, refused):
        assert "does not support eager execution" in text and "BroadcastGlobalVariablesCallback" in text


def test_an_optimizer_that_cannot_train_in_a_graph_is_refused_with_the_one_that_can():
    for _, text in run("tf1_graph", refused):
        assert "use tf.keras.optimizers.legacy.SGD" in text


def accumulated_in_graph():
    import numpy as np

    keras, hvd, optimizers = front_end()
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, use_bias=False)])
    model.set_weights([np.zeros((2, 1), np.float32)])
    model.compile(hvd.DistributedOptimizer(optimizers.SGD(0.5), backward_passes_per_step=2), "mae")
    x = np.ones((4, 2), np.float32) * (hvd.rank() + 1)
    history = []
    for _ in range(4):  # the gradient of a pass is -x
        model.train_on_batch(x, np.full((4, 1), 100.0))
        history.append(model.get_weights()[0].ravel().tolist())
    return history


def test_backward_passes_per_step_moves_the_weights_in_a_graph():
    # Every second pass: 0.5 * (sum of two passes, averaged over the ranks: 2 * 1.5).
    expected = [[0.0, 0.0], [1.5, 1.5], [1.5, 1.5], [3.0, 3.0]]
    assert run("tf1_graph", accumulated_in_graph) == [expected, expected]
