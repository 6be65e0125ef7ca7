# SPDX-License-Identifier: Apache-2.0
"""Training: several ranks end with the weights of one process on the whole batch, whatever the options."""

from __future__ import annotations

import numpy as np
import pytest
from tests_support import check_close

STEPS = 12
BATCH = 24  # divisible by 2 and 3


def digits(rank=0, size=1):
    """This rank's part of fixed batches of scikit-learn's digits."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x, y = (x / 16).astype(np.float32), y.astype(np.int32)
    batches = [(x[i * BATCH : (i + 1) * BATCH], y[i * BATCH : (i + 1) * BATCH]) for i in range(STEPS)]
    return [(bx[rank::size], by[rank::size]) for bx, by in batches]


def parameters(seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"w1": (64, 32), "b1": (32,), "w2": (32, 10), "b2": (10,)}
    return {k: rng.normal(0, 0.1, s).astype(np.float32) for k, s in shapes.items()}


def loss(params, x, y):
    import jax
    import jax.numpy as jnp

    hidden = jnp.tanh(x @ params["w1"] + params["b1"])
    logits = hidden @ params["w2"] + params["b2"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1).mean()


def train(tx, batches, params, gradient, jitted=True):
    import jax
    import optax

    def step(params, state, x, y):
        updates, state = tx.update(gradient(loss)(params, x, y), state, params)
        return optax.apply_updates(params, updates), state

    step = jax.jit(step, donate_argnums=(0, 1)) if jitted else step
    params = jax.tree.map(jax.numpy.asarray, params)
    state = tx.init(params)
    for x, y in batches:
        params, state = step(params, state, x, y)
    return {k: np.asarray(v) for k, v in params.items()}


def run_training(how, jitted=True):
    import jax
    import optax

    import horovod.jax as hvd

    batches = digits(hvd.rank(), hvd.size())
    params = hvd.broadcast_parameters(parameters(seed=hvd.rank()))
    sgd = optax.sgd(0.5, momentum=0.9)
    if how == "optimizer":
        return train(hvd.DistributedOptimizer(sgd), batches, params, jax.grad, jitted)
    if how == "adam":
        return train(hvd.DistributedOptimizer(optax.adam(0.01)), batches, params, jax.grad, jitted)
    if how == "predivide":
        tx = hvd.DistributedOptimizer(sgd, gradient_predivide_factor=2.0)
        return train(tx, batches, params, jax.grad, jitted)
    if how == "groups":
        return train(hvd.DistributedOptimizer(sgd, groups=3), batches, params, jax.grad, jitted)
    if how == "sum":
        tx = hvd.DistributedOptimizer(optax.chain(optax.scale(1 / hvd.size()), sgd), op=hvd.Sum)
        return train(tx, batches, params, jax.grad, jitted)
    if how == "bf16":
        tx = hvd.DistributedOptimizer(sgd, compression=hvd.Compression.bf16)
        return train(tx, batches, params, jax.grad, jitted)
    if how == "grad":
        return train(sgd, batches, params, hvd.grad, jitted)
    if how == "value_and_grad":
        return train(sgd, batches, params, lambda f: lambda *a: hvd.value_and_grad(f)(*a)[1], jitted)
    raise AssertionError(how)


def one_process(how):
    import jax
    import optax

    inner = optax.adam(0.01) if how == "adam" else optax.sgd(0.5, momentum=0.9)
    return train(inner, digits(), parameters(), jax.grad)


WAYS = ["optimizer", "adam", "predivide", "groups", "sum", "grad", "value_and_grad"]


@pytest.mark.parametrize("how", WAYS)
def test_same_weights_as_one_process(world, how):
    want = one_process(how)
    results = world.run(run_training, how)
    for name, weight in want.items():
        assert np.allclose(results[0][name], weight, rtol=1e-3, atol=2e-5), name
        for other in results[1:]:
            assert np.array_equal(other[name], results[0][name]), name


def test_same_weights_without_jit(pair):
    results, want = pair.run(run_training, "optimizer", False), one_process("optimizer")
    for name, weight in want.items():
        assert np.allclose(results[0][name], weight, rtol=1e-3, atol=2e-5), name


def test_compressed_gradients_are_close(pair):
    results, want = pair.run(run_training, "bf16"), one_process("optimizer")
    for name, weight in want.items():
        assert np.array_equal(results[0][name], results[1][name])
        assert np.allclose(results[0][name], weight, atol=0.05), name


def run_several_passes(average):
    """Four passes make two steps on the summed (or averaged) gradients."""
    import jax
    import jax.numpy as jnp
    import optax

    import horovod.jax as hvd

    tx = hvd.DistributedOptimizer(
        optax.sgd(1.0), backward_passes_per_step=2, average_aggregated_gradients=average
    )
    params = {"w": jnp.zeros((3,), jnp.float32)}
    state, history = tx.init(params), []
    update = jax.jit(tx.update)
    for i in range(4):
        gradients = {"w": jnp.full((3,), float(i + hvd.rank()), jnp.float32)}
        updates, state = update(gradients, state, params)
        params = optax.apply_updates(params, updates)
        history.append(float(params["w"][0]))
    return history


@pytest.mark.parametrize("average", [False, True])
def test_backward_passes_per_step(world, average):
    mean = (world.np - 1) / 2
    divisor = 2 if average else 1
    first = -((0 + mean) + (1 + mean)) / divisor
    second = first - ((2 + mean) + (3 + mean)) / divisor
    for history in world.run(run_several_passes, average):
        assert np.allclose(history, [0, first, first, second]), history


def run_values():
    import jax
    import jax.numpy as jnp

    import horovod.jax as hvd

    def cost(w, x):
        return (w * x).sum(), {"x": x}

    x = jnp.arange(3.0, dtype=jnp.float32) + hvd.rank()
    w = jnp.ones((3,), jnp.float32)
    both = hvd.value_and_grad(cost, has_aux=True, average_value=True)
    (value, aux), gradient = jax.jit(both)(w, x)
    local, _ = hvd.value_and_grad(lambda w, x: cost(w, x)[0])(w, x)
    only, aux_too = hvd.grad(cost, has_aux=True)(w, x)
    mean = (hvd.size() - 1) / 2
    want = np.arange(3, dtype=np.float32) + np.float32(mean)
    return [
        check_close(gradient, want, "gradient"),
        check_close(only, want, "grad"),
        check_close(value, np.float32(3 + 3 * mean), "averaged value"),
        check_close(local, np.float32(3 + 3 * hvd.rank()), "local value"),
        check_close(aux["x"], np.asarray(x), "aux"),
        check_close(aux_too["x"], np.asarray(x), "aux of grad"),
    ]


def test_values_and_auxiliary_data(world):
    assert world.run(run_values) == [[""] * 6] * world.np


def run_set():
    """Ranks outside of the set keep their own gradients."""
    import jax.numpy as jnp
    import optax

    import horovod.jax as hvd

    some = hvd.add_process_set([0, 1])
    tx = hvd.DistributedOptimizer(optax.sgd(1.0), process_set=some)
    w = jnp.zeros((2,), jnp.float32)
    updates, _ = tx.update(jnp.full((2,), float(hvd.rank())), tx.init(w), w)
    hvd.barrier()
    hvd.remove_process_set(some)
    return float(updates[0])


def test_process_set(trio):
    assert trio.run(run_set) == [-0.5, -0.5, -2.0]


def run_unlike_weights(broadcast):
    """What updates outside of jit say of the parameters."""
    import warnings

    import jax
    import optax

    import horovod.jax as hvd

    params = parameters(seed=hvd.rank())
    if broadcast:
        params = hvd.broadcast_parameters(params)
    tx = hvd.DistributedOptimizer(optax.sgd(0.1))
    state = tx.init(params)
    x, y = digits(hvd.rank(), hvd.size())[0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(20):
            updates, state = tx.update(jax.grad(loss)(params, x, y), state, params)
            params = optax.apply_updates(params, updates)
    return [(one.filename, str(one.message)) for one in caught if "weights" in str(one.message)]


def test_parameters_that_were_not_broadcast_are_reported(pair):
    ((filename, text),), other = pair.run(run_unlike_weights, False)
    assert "weights differ at the first update: those of rank 1 are not rank 0's" in text
    assert "the first to differ is ['b1']" in text and "hvd.broadcast_parameters(params)" in text
    assert filename == __file__ and other == []


def test_parameters_that_were_broadcast_pass_in_silence(pair):
    assert pair.run(run_unlike_weights, True) == [[], []]


def run_wrong_options():
    import optax

    import horovod.jax as hvd

    texts = []
    for options in ({"backward_passes_per_step": 0}, {"gradient_predivide_factor": 2.0, "op": hvd.Sum}):
        try:
            hvd.DistributedOptimizer(optax.sgd(1.0), **options)
            texts.append("no error")
        except ValueError as error:
            texts.append(str(error))
    return texts


def test_wrong_options(pair):
    for texts in pair.run(run_wrong_options):
        assert texts == [
            "backward_passes_per_step must be > 0",
            "gradient_predivide_factor not supported with op != Average",
        ]
