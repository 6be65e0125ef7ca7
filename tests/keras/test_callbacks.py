# SPDX-License-Identifier: Apache-2.0
"""The callbacks and the elastic callbacks, on every Keras."""

from __future__ import annotations

import pytest
from tf_worlds import front_end, run

KINDS = ["tensorflow", "torch", "jax", "tf_keras", "tf1_graph"]


def called_back():
    import contextlib
    import io

    import numpy as np

    from horovod._keras import variables
    from horovod.common import observation

    keras, hvd, optimizers = front_end()
    me = hvd.rank()
    results = {}

    def model_of(seed, rate=0.4):
        keras.utils.set_random_seed(seed)
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
        model.compile(hvd.DistributedOptimizer(optimizers.SGD(rate, momentum=0.5)), "mse")
        return model

    x, y = np.ones((8, 3), np.float32) * (me + 1), np.zeros((8, 1), np.float32)

    class Rates(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.seen = []

        def on_train_batch_end(self, batch, logs=None):
            (rate,) = variables.read([self.model.optimizer.learning_rate])
            self.seen.append(round(float(rate), 4))

    # Other weights on other ranks become the root's, also when the model is only built by its first batch.
    for built in (True, False):
        keras.utils.set_random_seed(10 + me)
        layers = [keras.layers.Dense(1)]
        model = keras.Sequential(([keras.layers.Input((3,))] if built else []) + layers)
        model.compile(hvd.DistributedOptimizer(optimizers.Adam(0.01)), "mse")
        broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(1)
        model.fit(x, y, batch_size=4, epochs=1, verbose=0, shuffle=False, callbacks=[broadcast])
        kernels = hvd.allgather(np.asarray(model.get_weights()[0]).reshape(1, -1))
        results[f"broadcast, built={built}"] = broadcast.broadcast_done and bool(
            np.allclose(np.asarray(kernels)[0], np.asarray(kernels)[1], atol=1e-6)
        )

    # Metrics are averaged before the history sees them.
    model = model_of(0, rate=0.0)
    own = model.evaluate(x, y, verbose=0)
    mean = float(np.mean(np.asarray(hvd.allgather(np.array([own])))))
    history = model.fit(
        x, y, epochs=1, batch_size=8, verbose=0, callbacks=[hvd.callbacks.MetricAverageCallback()]
    )
    results["metric average"] = bool(np.isclose(history.history["loss"][0], mean)) and not np.isclose(
        own, mean
    )

    # Batches are steps; what Horovod took of the epoch is in its history. From the first mark on, only
    # marks count.
    observation.step_done()
    before = hvd.metrics()
    history = model.fit(x, y, epochs=2, batch_size=4, verbose=0, callbacks=[hvd.callbacks.MetricsCallback()])
    after = hvd.metrics()
    results["steps"] = after["steps"] - before["steps"] == 4 or (before["steps"], after["steps"])
    sent = sum(history.history["hvd_mib"]) * (1 << 20)
    results["mib"] = 0 < sent <= after["bytes"] - before["bytes"]
    waits = history.history["hvd_wait_s"] + history.history["hvd_execute_s"]
    results["seconds"] = len(waits) == 4 and min(waits) >= 0

    # Warm-up from lr / size to lr over two epochs of two batches; the optimizer's rate is the target.
    model, rates = model_of(0, rate=0.4), Rates()
    warmup = hvd.callbacks.LearningRateWarmupCallback(warmup_epochs=2, verbose=1)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        history = model.fit(x, y, epochs=3, batch_size=4, verbose=0, callbacks=[warmup, rates])
    results["warm-up"] = rates.seen == [0.25, 0.3, 0.35, 0.4, 0.4, 0.4] or rates.seen
    results["lr in logs"] = [round(v, 4) for v in history.history["lr"]] == [0.3, 0.4, 0.4]
    said = "finished gradual learning rate warmup to 0.4." in printed.getvalue()
    results["verbose on rank 0"] = said == (me == 0)

    model, rates = model_of(0, rate=0.4), Rates()
    warmup = hvd.callbacks.LearningRateWarmupCallback(warmup_epochs=1.5)
    model.fit(x, y, epochs=3, batch_size=4, verbose=0, callbacks=[warmup, rates])
    ramp = [round(0.4 / 2 * (step / 3 + 1), 4) for step in (1, 2, 3)]
    results["warm-up of 1.5"] = [round(v, 4) for v in rates.seen] == [*ramp, 0.4, 0.4, 0.4] or rates.seen

    # A staircase: constant multiplier (PR 3142) and a function.
    model, rates = model_of(0), Rates()
    step = hvd.callbacks.LearningRateScheduleCallback(0.4, 0.5, start_epoch=1)
    model.fit(x, y, epochs=3, batch_size=8, verbose=0, callbacks=[step, rates])
    results["staircase"] = rates.seen == [0.4, 0.4, 0.2] or rates.seen
    model, rates = model_of(0), Rates()
    smooth = hvd.callbacks.LearningRateScheduleCallback(0.4, lambda e: 1 - e / 2, staircase=False)
    model.fit(x, y, epochs=1, batch_size=4, verbose=0, callbacks=[smooth, rates])
    results["every batch"] = rates.seen == [0.4, 0.3] or rates.seen
    try:
        hvd.callbacks.LearningRateScheduleCallback(None, 1.0)
        results["initial_lr"] = False
    except ValueError as error:
        results["initial_lr"] = str(error) == "Parameter `initial_lr` is required"

    # Elastic state: an epoch that went on, commits, and a restore.
    model = model_of(0, rate=0.01)
    model.fit(x, y, epochs=1, batch_size=8, verbose=0)
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    model.fit(
        x,
        y,
        epochs=2,
        batch_size=4,
        verbose=0,
        callbacks=[
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.CommitStateCallback(state, batches_per_commit=1),
        ],
    )
    results["epoch and batch"] = (state.epoch, state.batch) == (2, 0) or (state.epoch, state.batch)
    kept = [np.array(w) for w in model.get_weights()]
    model.set_weights([w * 0 + me for w in kept])
    state.restore()
    results["restored"] = all(np.allclose(a, b) for a, b in zip(model.get_weights(), kept))
    model.set_weights([w * 0 + me for w in kept])
    state.sync()
    results["synchronised"] = all(np.allclose(w, 0) for w in model.get_weights())
    return results


def best_by_position():
    """horovod.keras leaves save_weights_only out of the order, horovod.tensorflow.keras has it third."""
    import importlib

    keras, hvd, _ = front_end()
    callbacks = importlib.import_module(f"{hvd.__name__}.callbacks")
    third = [False] if hvd.__name__ == "horovod.tensorflow.keras" else []
    best = callbacks.BestModelCheckpoint("score", 1, *third, "max", 7)
    return best.monitor, best.verbose, best.save_weights_only, best.save_freq, best.save_best_only


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_of_the_best_model_by_position(kind):
    assert run(kind, best_by_position) == [("score", 1, False, 7, True)] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_callbacks(kind):
    for results in run(kind, called_back):
        assert {what: ok for what, ok in results.items() if ok is not True} == {}


def interrupted_epochs():
    """Epochs and batches over several calls of fit, as after resets; fit counts from 0 or initial_epoch."""
    import numpy as np

    keras, hvd, optimizers = front_end()
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(optimizers.SGD(0.01)), "mse")
    x, y = np.ones((16, 3), "float32"), np.ones((16, 1), "float32")
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)
    callbacks = [hvd.elastic.UpdateBatchStateCallback(state), hvd.elastic.UpdateEpochStateCallback(state)]
    seen = []
    for options in ({"epochs": 2}, {"epochs": 1}, {"epochs": 5, "initial_epoch": 3}, {"epochs": 1}):
        model.fit(x, y, batch_size=8, verbose=0, callbacks=callbacks, **options)
        seen.append(state.epoch)
    batches = callbacks[0]
    state.batch = 3
    batches.on_train_begin()
    batches.set_params({"steps": 10})
    batches.on_epoch_begin(0)
    batches.on_train_batch_end(1)
    return seen, batches.params["steps"], state.batch


@pytest.mark.parametrize("kind", KINDS)
def test_issue_2844(kind):
    for seen, steps, batch in run(kind, interrupted_epochs):
        assert seen == [2, 3, 5, 6], "epochs that were done, however fit counts them"
        assert steps == 7 and batch == 4, "batches of before the interruption count when there is another"


def values():
    import numpy as np

    keras, hvd, optimizers = front_end()
    me = hvd.rank()
    as_list = lambda v: np.asarray(v).tolist()  # noqa: E731
    return [
        as_list(hvd.allreduce(np.array([1.0, 2.0]) * (me + 1))),
        as_list(hvd.allreduce(float(me), name="number", op=hvd.Sum)),
        as_list(hvd.allreduce(np.float32([1e-8, 2.0]), compression=hvd.Compression.fp16)),
        as_list(hvd.allgather(np.array([[me]]))),
        as_list(hvd.broadcast(np.array([me + 5]), 1)),
        as_list(hvd.reducescatter(np.array([1.0, 2.0]), op=hvd.Sum)),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_values(kind):
    common = [[1.5, 3.0], 1.0, [0.0, 2.0], [[0], [1]], [6]]  # 1e-8 is nothing in float16
    assert run(kind, values) == [[*common, [2.0]], [*common, [4.0]]]
