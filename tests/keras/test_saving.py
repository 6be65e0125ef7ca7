# SPDX-License-Identifier: Apache-2.0
"""A wrapped optimizer is saved as the optimizer it wraps, and shares everything with it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pytest
from tf_worlds import run


def saved(directory):
    import os

    import numpy as np

    legacy = bool(os.environ.get("TF_USE_LEGACY_KERAS"))
    if legacy:
        import tensorflow as tf

        import horovod.tensorflow.keras as hvd

        keras = tf.keras
    else:
        import keras

        import horovod.keras as hvd
    results = {}

    class Mine(keras.optimizers.SGD):
        pass

    def trained(optimizer):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
        model.compile(optimizer, keras.losses.MeanSquaredError())
        x = np.ones((4, 3), np.float32)
        model.fit(x, x[:, :1], epochs=2, verbose=0)
        return model

    plain = keras.optimizers.Adam(0.01, clipnorm=1.0, name="my_adam")
    wrapped = hvd.DistributedOptimizer(plain)
    serialize = keras.optimizers.serialize
    results["isinstance"] = isinstance(wrapped, keras.optimizers.Adam) and type(wrapped).__name__ == "Adam"
    results["class"] = wrapped.__class__ is type(plain)
    results["module"] = type(wrapped).__module__ == "horovod._keras"
    results["config"] = wrapped.get_config() == plain.get_config()
    results["serialised"] = serialize(wrapped) == serialize(plain)
    results["name"] = wrapped.name == "my_adam"
    results["renamed"] = hvd.DistributedOptimizer(keras.optimizers.SGD(), name="other").name == "other"
    plain.learning_rate = 0.5
    results["shares the rate (3329)"] = (
        abs(float(np.asarray(wrapped.learning_rate)) - 0.5) < 1e-6 if not legacy else True
    )
    model = trained(wrapped)
    results["variables, called"] = len(wrapped.variables) == len(wrapped.variables()) > 4
    results["shares the steps"] = int(np.asarray(plain.iterations)) == 2
    if hvd.rank() == 0:
        path = os.path.join(directory, "model.keras")
        model.save(path)
        again = keras.models.load_model(path)
        results["loads plain"] = type(again.optimizer).__module__ != "horovod._keras"
    path = os.path.join(directory, f"own{hvd.rank()}.keras")
    model.save(path)
    ours = hvd.load_model(path)
    results["rewrapped (2486)"] = type(ours.optimizer).__module__ == "horovod._keras"
    results["state kept"] = int(np.asarray(ours.optimizer.iterations)) == 2
    x = np.ones((4, 3), np.float32)
    ours.fit(x, x[:, :1] * hvd.rank(), epochs=1, verbose=0)
    kernels = np.asarray(hvd.allgather(np.asarray(ours.get_weights()[0]).reshape(1, -1)))
    results["still reduces"] = bool(np.allclose(kernels[0], kernels[1]))
    custom = trained(hvd.DistributedOptimizer(Mine(0.1)))
    path = os.path.join(directory, f"custom{hvd.rank()}.keras")
    custom.save(path)
    loaded = hvd.load_model(path, custom_optimizers=[Mine])
    results["custom optimizer"] = isinstance(loaded.optimizer, Mine)
    if not legacy:  # there it is Keras that adds up the passes, and saves how many
        passes = trained(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2))
        path = os.path.join(directory, f"passes{hvd.rank()}.keras")
        passes.save(path)
        plainly = keras.models.load_model(path).optimizer
        rewrapped = hvd.DistributedOptimizer(plainly, backward_passes_per_step=2)
        results["passes again"] = rewrapped.gradient_accumulation_steps == 2
        try:
            hvd.DistributedOptimizer(plainly, backward_passes_per_step=3)
            results["other passes"] = False
        except ValueError as error:
            results["other passes"] = "gradient_accumulation_steps=2" in str(error)
    for bad, text in (
        (lambda: hvd.DistributedOptimizer(plain, op=4), "op currently only supports Average and Sum"),
        (lambda: hvd.DistributedOptimizer(plain, groups=0), "groups should be a non-negative integer"),
        (lambda: hvd.DistributedOptimizer("adam"), "takes an optimizer of Keras"),
    ):
        try:
            bad()
            results[text] = False
        except (ValueError, TypeError) as error:
            results[text] = text in str(error)
    return results


@pytest.mark.parametrize("kind", ["tensorflow", "torch", "jax", "tf_keras"])
def test_saving(kind):
    with tempfile.TemporaryDirectory() as directory:
        for results in run(kind, saved, directory):
            assert {what: ok for what, ok in results.items() if ok is not True} == {}
        if kind == "tf_keras":
            return
        # A process that cannot import Horovod at all.
        script = (
            "import sys; sys.modules['horovod'] = None\n"
            f"import keras; m = keras.models.load_model({os.path.join(directory, 'model.keras')!r})\n"
            "print(type(m.optimizer).__name__, m.optimizer.name, int(m.optimizer.iterations))"
        )
        env = {**os.environ, "KERAS_BACKEND": kind, "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run(
            [sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=600
        )
        assert done.stdout.strip() == "Adam my_adam 2", done.stderr[-1500:]


def checkpointed(directory):
    """tf.train.Checkpoint sees through the wrapper: what it saves restores into a plain optimizer."""
    import keras
    import numpy as np
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    keras.utils.set_random_seed(0)
    x = np.ones((4, 3), np.float32)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))
    model.compile(optimizer, "mse")
    model.fit(x, x[:, :1], verbose=0)
    path = tf.train.Checkpoint(model=model, optimizer=optimizer).save(f"{directory}/{hvd.rank()}")
    other = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    plain = keras.optimizers.Adam(0.5)
    plain.build(other.trainable_variables)
    tf.train.Checkpoint(model=other, optimizer=plain).restore(path).assert_existing_objects_matched()
    same = np.allclose(other.get_weights()[0], model.get_weights()[0])
    return bool(same), int(plain.iterations), round(float(plain.learning_rate), 4)


def test_tf_checkpoint():
    with tempfile.TemporaryDirectory() as directory:
        assert run("tensorflow", checkpointed, directory) == [(True, 1, 0.01)] * 2


def copied():
    import copy
    import pickle

    import keras

    import horovod.keras as hvd

    wrapped = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.25, momentum=0.5), gradient_predivide_factor=2.0
    )
    copies = [copy.deepcopy(wrapped), pickle.loads(pickle.dumps(wrapped))]
    return [
        (type(c).__module__, float(c.learning_rate), c.momentum, c._hvd_settings.gradient_predivide_factor)
        for c in copies
    ]


def test_copies_and_pickles_stay_distributed():
    assert run("tensorflow", copied) == [[("horovod._keras", 0.25, 0.5, 2.0)] * 2] * 2


def auto_jit():
    """With a GPU, Keras compiles the step by XLA unless told otherwise; that is turned off with a reason."""
    import warnings

    import keras
    import numpy as np

    import horovod.keras as hvd
    from horovod.tensorflow import _xla

    before, _xla.why_not = _xla.why_not, lambda: "there is a GPU (of the test)"
    try:
        x = np.ones((4, 3), np.float32)
        outcomes = []
        for callbacks in ([], [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]):
            model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
            optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
            if callbacks:
                optimizer.build(model.trainable_variables)  # built already: the callback has to notice
            model.compile(optimizer, "mse", jit_compile=True)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model.fit(x, x[:, :1], verbose=0, callbacks=callbacks)
            said = any("turned jit_compile off" in str(w.message) and "GPU" in str(w.message) for w in caught)
            outcomes.append((model.jit_compile, said))
        return outcomes
    finally:
        _xla.why_not = before


def test_auto_jit_never_breaks_a_default_compile():
    assert run("tensorflow", auto_jit) == [[(False, True), (False, True)]] * 2
