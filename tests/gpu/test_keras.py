# SPDX-License-Identifier: Apache-2.0
"""Keras on a GPU, on its backends PyTorch and JAX: it learns, and all ranks hold the same weights."""

from __future__ import annotations

import importlib.util

import pytest
from processes import Processes
from real_gpu import way_env, went

SCRIPT = """
from real_gpu import enter, report
import keras, horovod.keras as hvd
hvd.init()
enter()
rng = np.random.default_rng(hvd.rank())
x = rng.normal(size=(512, 16)).astype("float32")
y = x @ (np.arange(16, dtype="float32")[:, None] / 16)
keras.utils.set_random_seed(hvd.rank())
model = keras.Sequential(
    [keras.Input((16,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
history = model.fit(x, y, batch_size=32, epochs=4, verbose=0, callbacks=callbacks)
weights = [float(w) for w in np.concatenate([np.asarray(w).ravel() for w in model.get_weights()])]
say([history.history["loss"], weights, report().get("sets", [])])
"""


@pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="no Keras here")
@pytest.mark.parametrize("backend", ["torch", "jax"])
@pytest.mark.parametrize(
    "way, np", [("direct", 2), ("NCCL", 4), ("host", 2)], ids=["direct-2", "NCCL-4", "host-2"]
)
def test_training(backend, way, np):
    with Processes(SCRIPT, np, env={**way_env(way), "KERAS_BACKEND": backend}) as ranks:
        told = [ranks.heard(rank, timeout=120) for rank in range(np)]
        assert ranks.finish() == [0] * np
    for losses, weights, sets in told:
        assert losses[-1] < 0.2 * losses[0], losses
        assert weights == told[0][1]
        assert sets and went(way, sets), sets
