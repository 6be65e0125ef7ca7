# SPDX-License-Identifier: Apache-2.0
"""Variables of models and optimizers of any Keras: listing, reading, writing, broadcasting."""

from __future__ import annotations

from typing import Any, Iterable, List, Sequence

import numpy as np

from horovod._keras import session
from horovod.common import objects


def is_keras3(obj: Any) -> bool:
    """Whether an object (layer, model, optimizer, variable) belongs to Keras 3."""
    return any(c.__module__.split(".")[0] == "keras" for c in type(obj).__mro__)


def of(obj: Any) -> List[Any]:
    """All variables of a model or an optimizer; `variables` is a list or, in Keras 2, a method."""
    found = obj.variables
    return list(found() if callable(found) and not isinstance(found, (list, tuple)) else found)


def of_all(*objs: Any) -> List[Any]:
    """The variables of a model, its optimizer, ..., each once; what is None has none."""
    return list({id(v): v for obj in objs if obj is not None for v in of(obj)}.values())


def kept_for(some: Iterable[Any], optimizer: Any) -> List[Any]:
    """The state (momentum, ...) that an optimizer keeps for some of the variables it trains."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of a loss scaler
    if hasattr(optimizer, "get_slot_names"):  # Keras 2, legacy
        return [slot for v in some for slot in _slots(optimizer, v)]
    # Every kind of state is a list, in the order of the trained variables.
    places = getattr(optimizer, "_trainable_variables_indices", getattr(optimizer, "_index_dict", {}))
    where = [places[optimizer._var_key(v)] for v in some if optimizer._var_key(v) in places] if places else []
    lists = [
        v for k, v in getattr(optimizer, "__dict__", {}).items() if isinstance(v, list) and k != "_variables"
    ]
    return [kind[i] for kind in lists if len(kind) == len(places) for i in where]


def _slots(optimizer: Any, variable: Any) -> List[Any]:
    try:
        return [optimizer.get_slot(variable, name) for name in optimizer.get_slot_names()]
    except KeyError:  # it does not train this one
        return []


def on_tensorflow(variables: Iterable[Any]) -> bool:
    """Whether the variables are TensorFlow's."""
    if not any(is_keras3(v) for v in variables):
        return True
    import keras

    return str(keras.config.backend()) == "tensorflow"


def read(variables: Sequence[Any]) -> List[Any]:
    """Copies of the variables' values."""
    if session.in_graph():
        return list(session.run(list(variables)))
    return [_to_numpy(v) for v in variables]


def _to_numpy(variable: Any) -> Any:
    if is_keras3(variable):
        import keras

        return np.array(keras.ops.convert_to_numpy(variable.value))
    return variable.numpy()


def write(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Gives the variables values."""
    if session.in_graph():
        session.backend().batch_set_value(list(zip(variables, values)))
        return
    for variable, value in zip(variables, values):
        variable.assign(value)


def broadcast(variables: Sequence[Any], root_rank: int) -> None:
    """Gives all ranks the root's values."""
    if not variables:
        return
    if on_tensorflow(variables):
        from horovod.tensorflow.functions import broadcast_variables

        op = broadcast_variables(variables, root_rank)
        if session.in_graph():
            session.run(op)
        return
    write(variables, objects.broadcast_object(read(variables), root_rank, name="keras_variables"))


def broadcast_global(root_rank: int) -> None:
    """Gives all ranks the root's values of every variable of a TF1 graph, in Keras' session."""
    if not session.in_graph():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution. Please use "
            "hvd.callbacks.BroadcastGlobalVariablesCallback, or, on TensorFlow, "
            "`hvd.broadcast_variables(<model/optimizer variables>)` of horovod.tensorflow instead."
        )
    from horovod.tensorflow.functions import broadcast_global_variables

    session.run(broadcast_global_variables(root_rank))
