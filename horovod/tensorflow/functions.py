# SPDX-License-Identifier: Apache-2.0
"""Broadcasts of variables and of Python objects."""

from __future__ import annotations

from typing import Any, Callable, Iterable, List, Optional

import tensorflow as tf

from horovod.common import objects
from horovod.common.basics import basics as _basics
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import mpi_ops

_NOT_EAGER = (
    "hvd.broadcast_global_variables() does not support eager execution. Please use "
    "`hvd.broadcast_variables(<model/optimizer variables>)` instead."
)


def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Gives the variables of all ranks the root's values.

    Args:
        variables: variables of TensorFlow or Keras, in the same order on all ranks.
        root_rank: the global rank whose values are taken.
        process_set: the ranks that take part.
        inplace: accepted for compatibility; values are always assigned to the variables.

    Returns:
        None in eager mode, where it has happened; the op that does it in a graph.
    """
    variables = list(variables)
    if not variables:
        return None if tf.executing_eagerly() else tf.no_op()
    # Ranks may have other nodes in their graphs and other names for their layers; what they have in common is
    # the order of their broadcasts in a process set, by which TensorFlow numbers equal names.
    name = None if tf.executing_eagerly() else f"HorovodBroadcastVariables_set{process_set.process_set_id}"
    values = mpi_ops._grouped_broadcast(
        [tf.convert_to_tensor(v) for v in variables], root_rank, name=name, process_set=process_set
    )
    if tf.executing_eagerly():
        if _basics.rank() != root_rank:
            for variable, value in zip(variables, values):
                variable.assign(value)
        return None
    return tf.group(*[variable.assign(value) for variable, value in zip(variables, values)])


def broadcast_global_variables(root_rank: int) -> Any:
    """The op that broadcasts all global variables of a TF1 graph."""
    if tf.executing_eagerly():
        raise RuntimeError(_NOT_EAGER)
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's picklable object on every rank. `session` is accepted for TF1 programs; none is needed."""
    return objects.broadcast_object(obj, root_rank, name=name, process_set=process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """A function that broadcasts the object it is given."""
    name = name or "broadcast_object_fn"
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any, session: Any = None, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> List[Any]:
    """The objects of all ranks of the set, in its order."""
    return objects.allgather_object(obj, name=name, process_set=process_set)
