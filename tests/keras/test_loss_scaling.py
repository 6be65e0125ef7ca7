# SPDX-License-Identifier: Apache-2.0
"""Loss scalers: all ranks skip the same steps and keep the same scale."""

from __future__ import annotations

import pytest
from tf_worlds import front_end, run

KINDS = ["tensorflow", "torch", "jax", "tf_keras"]


def mixed(options):
    """float16 with loss scaling: an overflow on one rank must skip the step on both."""
    import numpy as np

    keras, hvd, optimizers = front_end()
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = keras.Sequential([keras.layers.Input((6,)), keras.layers.Dense(4), keras.layers.Dense(1)])
        random = np.random.default_rng(1)
        model.set_weights([random.normal(size=w.shape) for w in model.get_weights()])
        model.compile(hvd.DistributedOptimizer(optimizers.SGD(0.01), **options), "mse")
        random = np.random.default_rng(2 + hvd.rank())
        x, y = (random.normal(size=(16, columns)).astype(np.float32) for columns in (6, 1))
        if hvd.rank() == 1:
            x[:4] = 1e5  # infinite in float16, in the first batch of rank 1 only
        model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
        weights = model.get_weights()
    finally:
        keras.mixed_precision.set_global_policy("float32")
    return [np.asarray(w).tolist() for w in weights], bool(all(np.isfinite(w).all() for w in weights))


@pytest.mark.parametrize("kind, passes", [*((kind, 1) for kind in KINDS), ("tf_keras", 2), ("torch", 2)])
def test_issue_2175_an_overflow_on_one_rank_skips_the_step_on_all(kind, passes):
    (first, finite), (second, also_finite) = run(kind, mixed, {"backward_passes_per_step": passes})
    assert first == second
    assert finite and also_finite


def scaled_by_hand(legacy, compiled):
    """A loss scaler of Keras 2 around the wrapped optimizer, in a loop of the user's own."""
    import numpy as np
    import tensorflow as tf

    keras, hvd, optimizers = front_end()
    optimizers = keras.optimizers.legacy if legacy else optimizers
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


def scaled_passes(legacy, compiled, overflows, growth_steps):
    """Passes of a user's loop with two passes a step; the weights and the scale after each, and the steps."""
    import numpy as np
    import tensorflow as tf

    keras, hvd, optimizers = front_end()
    optimizers = keras.optimizers.legacy if legacy else optimizers
    inner = hvd.DistributedOptimizer(optimizers.SGD(0.5), op=hvd.Sum, backward_passes_per_step=2)
    scaler = keras.mixed_precision.LossScaleOptimizer(
        inner, initial_scale=4.0, dynamic_growth_steps=growth_steps
    )
    w = tf.Variable([1.0, 1.0])

    def by_hand(x):
        with tf.GradientTape() as tape:
            loss = scaler.get_scaled_loss(tf.reduce_sum(w * x))
        (gradient,) = scaler.get_unscaled_gradients(tape.gradient(loss, [w]))
        scaler.apply_gradients([(gradient, w)])

    def minimized(x):
        scaler.minimize(lambda: tf.reduce_sum(w * x), [w])

    seen = []
    for step in (by_hand, minimized):
        step = tf.function(step) if compiled else step
        w.assign([1.0, 1.0])
        for i in range(6):
            first = np.inf if (i, hvd.rank()) in overflows else 1.0
            step(tf.constant([first, float(hvd.rank())]))
            seen.append((w.numpy().tolist(), float(scaler.loss_scale)))
    return seen, int(scaler.iterations)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("legacy", [False, True], ids=["current", "legacy"])
def test_with_several_passes_a_loss_scaler_decides_on_reduced_gradients(legacy, compiled):
    # Rank 1 overflows in the first pass of the first step: nobody hears of it before the step's last pass, in
    # which both ranks skip and halve the scale. Any other step adds 0.5 * (1 + 1, 0 + 1) for each pass.
    first, second, third = [1.0, 1.0], [-1.0, 0.0], [-3.0, -1.0]
    weights = [first, first, first, second, second, third]
    scales = [4.0] + 5 * [2.0] + [2.0] + 5 * [1.0]
    expected = list(zip(2 * weights, scales)), 12
    assert run("tf_keras", scaled_passes, legacy, compiled, {(0, 1)}, 1000) == [expected, expected]


@pytest.mark.parametrize("legacy", [False, True], ids=["current", "legacy"])
def test_a_scale_that_grows_between_two_passes_of_a_step_does_not_change_their_sum(legacy):
    for seen, _ in run("tf_keras", scaled_passes, legacy, True, set(), 3):
        assert [w for w, _ in seen] == 2 * [[1, 1], [-1, 0], [-1, 0], [-3, -1], [-3, -1], [-5, -2]]
        assert [scale for _, scale in seen] == [4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64]


def scaled_sum(average):
    """Two passes a step on Keras 3 with a scaler around the optimizer: their sum, or their mean."""
    import numpy as np

    keras, hvd, optimizers = front_end()
    inner = hvd.DistributedOptimizer(
        optimizers.SGD(0.5), backward_passes_per_step=2, average_aggregated_gradients=average
    )
    scaler = keras.optimizers.LossScaleOptimizer(inner, initial_scale=4.0)
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, use_bias=False)])
    model.set_weights([np.zeros((2, 1), np.float32)])
    model.compile(scaler, "mae")
    x = np.ones((4, 2), np.float32) * (hvd.rank() + 1)
    model.fit(x, np.full((4, 1), 100.0, np.float32), batch_size=2, verbose=0)  # one step, gradient -x a pass
    return [float(v) for v in model.get_weights()[0].ravel()]


@pytest.mark.parametrize(
    "kind, average", [("tensorflow", False), ("torch", False), ("jax", False), ("tensorflow", True)]
)
def test_keras_3_adds_up_the_passes_also_under_a_loss_scaler(kind, average):
    moved = 0.5 * 1.5 * (1 if average else 2)
    assert run(kind, scaled_sum, average) == [[moved, moved]] * 2
