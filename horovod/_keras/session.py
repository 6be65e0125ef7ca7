# SPDX-License-Identifier: Apache-2.0
"""Keras 2 in a TF1 graph (`tf.compat.v1.disable_eager_execution()`), where values live in a session of Keras.

Whatever a collective or an assignment returns there is an op, and nothing has happened until it is run.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


def in_graph() -> bool:
    """Whether this process builds TF1 graphs. TensorFlow is not imported for the answer."""
    tf = sys.modules.get("tensorflow")
    return tf is not None and not tf.compat.v1.executing_eagerly_outside_functions()


def backend() -> Any:
    """The backend module of Keras 2: it knows the session, and sets variables in it."""
    import tensorflow as tf

    found = tf.compat.v1.keras.backend  # Keras 2 with TF_USE_LEGACY_KERAS=1
    if hasattr(found, "get_session"):
        return found
    return importlib.import_module("tf_keras.src.backend")  # its public API leaves get_session out


def run(fetches: Any) -> Any:
    """Runs ops and fetches tensors in Keras' session, which first gives Keras' variables their values."""
    return backend().get_session().run(fetches)


def value(result: Any) -> Any:
    """A result as the user expects it: a tensor in eager mode and inside functions, its value in a graph."""
    import tensorflow as tf

    return result if tf.executing_eagerly() or tf.inside_function() else run(result)
