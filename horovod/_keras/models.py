# SPDX-License-Identifier: Apache-2.0
"""Models that train with a distributed optimizer, caught when Keras makes their training step.

Keras tells an optimizer nothing about its model, and makes the compiled step before the optimizer is called
for the first time. The method that makes the step is the one place in between.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, Callable

from horovod._keras import jit, variables, weight_check


def watch_keras3(backend: str) -> None:
    """Has every Keras 3 model with a distributed optimizer looked at."""
    import keras

    if backend == "tensorflow":
        _around(keras.Model, "make_train_function", before=jit.avoid)
    if backend == "jax":  # whose compiled step is given the weights, and cannot look at them itself
        _around(keras.Model, "make_train_function", after=_follow_jax)


def watch_keras2_in_graphs() -> None:
    """The same for Keras 2 models in TF1 graphs."""
    model = importlib.import_module("tf_keras.src.engine.training_v1").Model
    _around(model, "_make_train_function", after=_follow_session)


def _follow_jax(model: Any) -> None:
    weight_check.follow(model, lambda state, *_: state[0])


def _follow_session(model: Any) -> None:
    weight_check.follow(model, lambda *_: variables.read(model.trainable_variables))


def _nothing(model: Any) -> None:
    pass


def _around(
    cls: Any, name: str, before: Callable[[Any], None] = _nothing, after: Callable[[Any], None] = _nothing
) -> None:
    """Puts calls around a method, once, for models with a distributed optimizer."""
    original = getattr(cls, name)
    if hasattr(original, "_horovod"):
        return

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        distributed = hasattr(type(getattr(self, "optimizer", None)), "_hvd")
        if distributed:
            before(self)
        made = original(self, *args, **kwargs)
        if distributed:
            after(self)
        return made

    method._horovod = True  # type: ignore[attr-defined]
    setattr(cls, name, method)
