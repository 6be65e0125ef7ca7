# SPDX-License-Identifier: Apache-2.0
"""`fit` and custom steps on two ranks, on every Keras, against one process with both halves of each batch."""

from __future__ import annotations

import pytest
from tf_worlds import front_end, run

KINDS = ["tensorflow", "torch", "jax", "tf_keras"]


def make_model(keras, seed):
    import numpy as np

    model = keras.Sequential(
        [
            keras.layers.Input((6,)),
            keras.layers.Dense(8, activation="tanh"),
            keras.layers.Dense(1),
        ]
    )
    random = np.random.default_rng(seed)
    model.set_weights([random.normal(size=w.shape, scale=0.3) for w in model.get_weights()])
    return model


def data():
    import numpy as np

    random = np.random.default_rng(1)
    x = random.normal(size=(64, 6)).astype(np.float32)
    return x, (x @ random.normal(size=(6, 1))).astype(np.float32)


def shard(array, hvd, batch=8):
    """This rank's half of every batch of 8."""
    batches = array.reshape(-1, batch, array.shape[-1])
    part = batch // hvd.size()
    return batches[:, hvd.rank() * part : (hvd.rank() + 1) * part].reshape(-1, array.shape[-1])


OPTIMIZERS = {
    "sgd": lambda keras, make: make.SGD(0.05, momentum=0.9),
    "adam clipnorm": lambda keras, make: make.Adam(0.01, clipnorm=0.5),
    "schedule": lambda keras, make: make.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 4, 0.5)),
    "ema": lambda keras, make: make.SGD(0.05, use_ema=True, ema_momentum=0.5),
}


def fitted(name, options, compile_options):
    import numpy as np

    from horovod._keras import variables

    keras, hvd, optimizers = front_end()
    x, y = data()
    alone = make_model(keras, 0)
    alone.compile(OPTIMIZERS[name](keras, optimizers), "mse")
    alone.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    ours = make_model(keras, hvd.rank())
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS[name](keras, optimizers), **options)
    ours.compile(optimizer, "mse", **compile_options)
    # The callback broadcasts after the first batch, which must start alike to be compared to the last digit.
    variables.broadcast(variables.of(ours), 0)
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    part = [shard(x, hvd), shard(y, hvd)]
    ours.fit(*part, batch_size=4, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
    return max(float(np.abs(a - b).max()) for a, b in zip(ours.get_weights(), alone.get_weights()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_fit_equals_one_process(kind, optimizer):
    assert max(run(kind, fitted, optimizer, {}, {})) < 2e-5


def test_fit_compiled_by_xla():
    assert max(run("tensorflow", fitted, "sgd", {}, {"jit_compile": True})) < 2e-5


@pytest.mark.parametrize("kind", ["tensorflow", "tf_keras"])
def test_fit_eagerly(kind):
    assert max(run(kind, fitted, "sgd", {}, {"run_eagerly": True})) < 2e-5


@pytest.mark.parametrize("optimizer", ["sgd", "adam clipnorm"])
def test_fit_in_a_tf1_graph_equals_one_process(optimizer):
    assert max(run("tf1_graph", fitted, optimizer, {}, {})) < 2e-5


def test_arguments_of_old_scripts():
    """Keras 2 still takes it; Keras 3 does not."""
    assert max(run("tf_keras", fitted, "sgd", {}, {"experimental_run_tf_function": False})) < 2e-5


def accumulated(average):
    """Four passes of a quarter of the batch each, on two ranks."""
    import numpy as np

    keras, hvd, optimizers = front_end()
    x, y = data()
    rate = 0.04
    alone = make_model(keras, 0)
    alone.compile(optimizers.SGD(rate if average else 2 * rate), "mse")
    alone.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
    ours = make_model(keras, 0)
    ours.compile(
        hvd.DistributedOptimizer(
            optimizers.SGD(rate), backward_passes_per_step=2, average_aggregated_gradients=average
        ),
        "mse",
    )
    ours.fit(shard(x, hvd), shard(y, hvd), batch_size=4, epochs=2, shuffle=False, verbose=0)
    return max(float(np.abs(a - b).max()) for a, b in zip(ours.get_weights(), alone.get_weights()))


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("kind", [*KINDS, "tf1_graph"])
def test_issue_2806_backward_passes_per_step(kind, average):
    assert max(run(kind, accumulated, average)) < 2e-5


def custom_step():
    """A train_step of the user's own that calls apply_gradients."""
    import numpy as np
    import tensorflow as tf

    keras, hvd, optimizers = front_end()

    class Custom(keras.Model):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def call(self, x, training=None):
            return self.inner(x)

        def train_step(self, batch):
            x, y = batch
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"loss": loss}

    x, y = data()

    def train(optimizer, a, b, batch):
        model = Custom(make_model(keras, 0))
        model.compile(optimizer)
        model.fit(a, b, batch_size=batch, epochs=1, shuffle=False, verbose=0)
        return model.get_weights()

    alone = train(keras.optimizers.SGD(0.05), x, y, 8)
    ours = train(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), shard(x, hvd), shard(y, hvd), 4)
    return max(float(np.abs(a - b).max()) for a, b in zip(ours, alone))


@pytest.mark.parametrize("kind", ["tensorflow", "tf_keras"])
def test_custom_train_step(kind):
    assert max(run(kind, custom_step)) < 2e-5


def partial():
    import numpy as np

    keras, hvd, optimizers = front_end()
    import horovod.keras as hvd_keras

    model = make_model(keras, 0)
    x, y = data()
    optimizer = hvd_keras.PartialDistributedOptimizer(
        keras.optimizers.SGD(0.05), local_layers=model.layers[0]
    )
    model.compile(optimizer, "mse")
    model.fit(shard(x, hvd), shard(y, hvd), batch_size=4, epochs=1, shuffle=False, verbose=0)
    return [np.asarray(w).tolist() for w in model.get_weights()]


@pytest.mark.parametrize("kind", ["tensorflow", "torch"])
def test_partial_optimizer_leaves_a_layer_local(kind):
    first, second = run(kind, partial)
    assert first[0] != second[0]  # trained on different data, never reduced
