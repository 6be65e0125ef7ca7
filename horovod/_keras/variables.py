# SPDX-License-Identifier: Apache-2.0
"""Variables of models and optimizers of any Keras: listing, reading, broadcasting."""

from __future__ import annotations

from typing import Any, Iterable, List

import numpy as np

from horovod.common import objects


def is_keras3(obj: Any) -> bool:
    """Whether an object (layer, model, optimizer, variable) belongs to Keras 3."""
    return any(c.__module__.split(".")[0] == "keras" for c in type(obj).__mro__)


def of(obj: Any) -> List[Any]:
    """All variables of a model or an optimizer; `variables` is a list or, in Keras 2, a method."""
    found = obj.variables
    return list(found() if callable(found) and not isinstance(found, (list, tuple)) else found)


def on_tensorflow(variables: Iterable[Any]) -> bool:
    """Whether the variables are TensorFlow's."""
    if not any(is_keras3(v) for v in variables):
        return True
    from horovod._keras.backends import keras_backend

    return keras_backend() == "tensorflow"


def to_numpy(variable: Any) -> Any:
    """A copy of a variable's value."""
    if is_keras3(variable):
        import keras

        return np.array(keras.ops.convert_to_numpy(variable.value))
    return variable.numpy()


def broadcast(variables: List[Any], root_rank: int) -> None:
    """Gives all ranks the root's values."""
    if not variables:
        return
    if on_tensorflow(variables):
        from horovod.tensorflow.functions import broadcast_variables

        broadcast_variables(variables, root_rank)
        return
    values = objects.broadcast_object([to_numpy(v) for v in variables], root_rank, name="keras_variables")
    for variable, value in zip(variables, values):
        variable.assign(value)
