# SPDX-License-Identifier: Apache-2.0
"""Worlds of two ranks with TensorFlow or a Keras backend loaded. Importing those is slow, so each world is
started once and runs all the tests of its kind."""

from __future__ import annotations

import os
from typing import Any, Dict, Tuple

import world

_QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "TF_NUM_INTEROP_THREADS": "2",
    "TF_NUM_INTRAOP_THREADS": "1",
}
_ENVIRONMENTS: Dict[str, Dict[str, str]] = {
    "tensorflow": {"KERAS_BACKEND": "tensorflow"},
    "torch": {"KERAS_BACKEND": "torch"},
    "jax": {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
    "tf_keras": {"TF_USE_LEGACY_KERAS": "1"},
    "tf1_graph": {"TF_USE_LEGACY_KERAS": "1", "HOROVOD_TEST_TF1_GRAPH": "1"},
}


def framework_world(kind: str) -> world.World:
    """The world of a kind: "tensorflow" (with Keras 3), "torch" and "jax" (Keras 3 on them), "tf_keras" and
    "tf1_graph" (Keras 2, eager and in TF1 graphs)."""
    known = world._shared.get(kind)
    if known is None or known.broken:
        known = world._shared[kind] = world.World(2, env={**_QUIET, **_ENVIRONMENTS[kind]})
    return known


def run(kind, function, *args, timeout=240):
    """Runs a function on both ranks of a kind's world; the first call also waits for the imports."""
    return framework_world(kind).run(function, *args, timeout=timeout)


def front_end() -> Tuple[Any, Any, Any]:
    """For functions that run in a world: its Keras, the Horovod for it, and the optimizers it trains with."""
    if not os.environ.get("TF_USE_LEGACY_KERAS"):
        import keras

        import horovod.keras

        return keras, horovod.keras, keras.optimizers
    import tensorflow as tf

    graph = bool(os.environ.get("HOROVOD_TEST_TF1_GRAPH"))
    if graph:
        tf.compat.v1.disable_eager_execution()
    import horovod.tensorflow.keras

    return tf.keras, horovod.tensorflow.keras, tf.keras.optimizers.legacy if graph else tf.keras.optimizers
