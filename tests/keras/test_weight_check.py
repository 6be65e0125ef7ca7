# SPDX-License-Identifier: Apache-2.0
"""A Keras program that forgets to make its ranks alike is told so, in every mode."""

from __future__ import annotations

import pytest
from tf_worlds import front_end, run

KINDS = ["tensorflow", "torch", "jax", "tf_keras", "tf1_graph"]


def fitted():
    from unittest import mock

    import numpy as np

    keras, hvd, optimizers = front_end()
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
    random = np.random.default_rng(hvd.rank())
    model.set_weights([random.normal(size=w.shape) for w in model.get_weights()])
    model.compile(hvd.DistributedOptimizer(optimizers.SGD(0.01)), "mse")

    class Together(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            hvd.barrier()  # the answer is there when the next step looks for it

    x = np.ones((24, 3), np.float32) * (hvd.rank() + 1)
    # Not catch_warnings: steps run on threads of TensorFlow, and the filters of any thread count for all.
    with mock.patch("warnings.warn") as warn:
        model.fit(x, x[:, :1], batch_size=4, epochs=1, verbose=0, callbacks=[Together()])
    said = [str(call.args[0]) for call in warn.call_args_list]
    return [text for text in said if "weights differ" in text]


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_that_start_from_different_weights_are_told_after_the_first_step(kind):
    (text,), others = run(kind, fitted)
    assert others == []
    assert "BroadcastGlobalVariablesCallback(0)" in text and "rank 1" in text
