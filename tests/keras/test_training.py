# SPDX-License-Identifier: Apache-2.0
"""`fit` and custom steps on two ranks, on every Keras, against one process with both halves of each batch."""

from __future__ import annotations

import pytest
from tf_worlds import run

KINDS = ["tensorflow", "torch", "jax", "tf_keras"]


def front_end():
    """The Keras of this world and its Horovod."""
    import os

    if os.environ.get("TF_USE_LEGACY_KERAS"):
        import tensorflow as tf

        import horovod.tensorflow.keras as hvd

        return tf.keras, hvd
    import keras

    import horovod.keras as hvd

    return keras, hvd


def make_model(keras, seed):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.layers.Input((6,)),
            keras.layers.Dense(8, activation="tanh"),
            keras.layers.Dense(1),
        ]
    )


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
    "sgd": lambda keras: keras.optimizers.SGD(0.05, momentum=0.9),
    "adam clipnorm": lambda keras: keras.optimizers.Adam(0.01, clipnorm=0.5),
    "schedule": lambda keras: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 4, 0.5)),
    "ema": lambda keras: keras.optimizers.SGD(0.05, use_ema=True, ema_momentum=0.5),
}


def fitted(name, options, compile_options):
    import numpy as np

    keras, hvd = front_end()
    x, y = data()
    alone = make_model(keras, 0)
    alone.compile(OPTIMIZERS[name](keras), "mse")
    alone.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    ours = make_model(keras, hvd.rank())
    optimizer = hvd.DistributedOptimizer(OPTIMIZERS[name](keras), **options)
    ours.compile(optimizer, "mse", **compile_options)
    ours.fit(
        shard(x, hvd),
        shard(y, hvd),
        batch_size=4,
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)] + equal_start(ours, hvd),
    )
    return max(float(np.abs(a - b).max()) for a, b in zip(ours.get_weights(), alone.get_weights()))


def equal_start(model, hvd):
    """Keras 2 makes its optimizer's variables in the first batch, after which the callback broadcasts; the
    first batch itself must then start alike for a comparison to the last digit."""
    from horovod._keras import variables

    variables.broadcast(variables.of(model), 0)
    return []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_fit_equals_one_process(kind, optimizer):
    assert max(run(kind, fitted, optimizer, {}, {})) < 2e-5


@pytest.mark.parametrize(
    "options",
    [{"gradient_predivide_factor": 2.0}, {"groups": 2}],
    ids=["predivide", "groups"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_options(kind, options):
    assert max(run(kind, fitted, "sgd", options, {})) < 2e-5


def test_fit_compiled_by_xla():
    assert max(run("tensorflow", fitted, "sgd", {}, {"jit_compile": True})) < 2e-5


@pytest.mark.parametrize("kind", ["tensorflow", "tf_keras"])
def test_fit_eagerly(kind):
    assert max(run(kind, fitted, "sgd", {}, {"run_eagerly": True})) < 2e-5


def test_arguments_of_old_scripts():
    """Keras 2 still takes it; Keras 3 does not."""
    assert max(run("tf_keras", fitted, "sgd", {}, {"experimental_run_tf_function": False})) < 2e-5


def accumulated(average):
    """Four passes of a quarter of the batch each, on two ranks."""
    import numpy as np

    keras, hvd = front_end()
    x, y = data()
    rate = 0.04
    alone = make_model(keras, 0)
    alone.compile(keras.optimizers.SGD(rate if average else 2 * rate), "mse")
    alone.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
    ours = make_model(keras, 0)
    ours.compile(
        hvd.DistributedOptimizer(
            keras.optimizers.SGD(rate), backward_passes_per_step=2, average_aggregated_gradients=average
        ),
        "mse",
    )
    ours.fit(shard(x, hvd), shard(y, hvd), batch_size=4, epochs=2, shuffle=False, verbose=0)
    return max(float(np.abs(a - b).max()) for a, b in zip(ours.get_weights(), alone.get_weights()))


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_issue_2806_backward_passes_per_step(kind, average):
    assert max(run(kind, accumulated, average)) < 2e-5


def mixed():
    """float16 with loss scaling: an overflow on one rank must skip the step on both."""
    import numpy as np

    keras, hvd = front_end()
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = make_model(keras, 0)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
        x, y = data()
        x, y = shard(x, hvd).copy(), shard(y, hvd)
        if hvd.rank() == 1:
            x[:4] = 1e5  # infinite in float16, in the first batch of rank 1 only
        model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
        weights = model.get_weights()
    finally:
        keras.mixed_precision.set_global_policy("float32")
    return [np.asarray(w).tolist() for w in weights], bool(all(np.isfinite(w).all() for w in weights))


@pytest.mark.parametrize("kind", KINDS)
def test_issue_2175_an_overflow_on_one_rank_skips_the_step_on_all(kind):
    (first, finite), (second, also_finite) = run(kind, mixed)
    assert first == second
    assert finite and also_finite


def scaled_by_hand(legacy, compiled):
    """A loss scaler of Keras 2 around the wrapped optimizer, in a loop of the user's own."""
    import numpy as np
    import tensorflow as tf

    keras, hvd = front_end()
    optimizers = keras.optimizers.legacy if legacy else keras.optimizers
    inner = hvd.DistributedOptimizer(optimizers.SGD(0.5), op=hvd.Sum)
    scaler = keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=4.0)
    w = tf.Variable([1.0, 1.0])

    def step(x):
        with tf.GradientTape() as tape:
            loss = scaler.get_scaled_loss(tf.reduce_sum(w * x))
        (gradient,) = scaler.get_unscaled_gradients(tape.gradient(loss, [w]))
        scaler.apply_gradients([(gradient, w)])

    step = tf.function(step) if compiled else step
    for i in range(4):
        overflow = i in (0, 2) and hvd.rank() == 1
        step(tf.constant([np.inf if overflow else 1.0, float(hvd.rank())]))
    return w.numpy().tolist(), float(scaler.loss_scale), int(scaler.iterations)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("legacy", [False, True], ids=["current", "legacy"])
def test_a_loss_scaler_around_the_optimizer_skips_on_all_ranks(legacy, compiled):
    # Steps 0 and 2 are skipped, each halving the scale; steps 1 and 3 apply 0.5 * (1 + 1) and 0.5 * (0 + 1).
    assert run("tf_keras", scaled_by_hand, legacy, compiled) == [([-1.0, 0.0], 1.0, 4)] * 2


def custom_step():
    """A train_step of the user's own that calls apply_gradients."""
    import numpy as np
    import tensorflow as tf

    keras, hvd = front_end()

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

    keras, hvd = front_end()
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
