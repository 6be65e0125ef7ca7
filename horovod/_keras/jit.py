# SPDX-License-Identifier: Apache-2.0
"""Keeps Keras from compiling a training step that XLA cannot compile.

On TensorFlow with a GPU, `jit_compile="auto"` (the default) means XLA, and XLA code for a GPU cannot call the
engine. On the CPU it can, where TensorFlow offers the way; there a user's jit_compile=True is kept.
"""

from __future__ import annotations

import warnings
from typing import Any


def avoid(model: Any) -> None:
    """Turns XLA off for a TensorFlow model whose step could not be compiled, and says so."""
    if not getattr(model, "jit_compile", False) or not _on_tensorflow(model):
        return
    from horovod.tensorflow import _xla

    reason = _xla.why_not()
    if reason is None:
        return
    model.jit_compile = False
    warnings.warn(
        f"Horovod turned jit_compile off for the model {getattr(model, 'name', '')!r}: {reason}. "
        "Pass jit_compile=False to compile() to silence this.",
        stacklevel=2,
    )


def _on_tensorflow(model: Any) -> bool:
    if not any(c.__module__.startswith("keras.") for c in type(model).__mro__):
        return True  # Keras 2
    from horovod._keras.backends import keras_backend

    return keras_backend() == "tensorflow"
