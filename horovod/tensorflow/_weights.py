# SPDX-License-Identifier: Apache-2.0
"""Whether the ranks' weights agree after the first step, looked at where gradients are reduced.

In eager mode that is a Python call a step until the answer is there. In a tf.function a variable says whether
somebody still wants to look: once that is over, a step has one condition more.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Dict, List, Sequence, Tuple

import tensorflow as tf

from horovod.common.basics import basics as _basics
from horovod.common.process_sets import ProcessSet, process_set_id
from horovod.common.weight_watch import WeightWatch
from horovod.tensorflow import _xla

_ADVICE = (
    "Give all ranks the same values: hvd.broadcast_variables(model.variables, root_rank=0) before or right "
    "after the first step, or hvd.callbacks.BroadcastGlobalVariablesCallback(0) in Keras."
)


class _Watch(WeightWatch):
    """A watch that also works in graphs."""

    def __init__(self, name: str, variables: Sequence[Any], process_set: ProcessSet) -> None:
        self.variables = [v for v in variables if hasattr(v, "assign") and tf.as_dtype(v.dtype).is_floating]
        names = [str(getattr(v, "path", getattr(v, "name", i))) for i, v in enumerate(self.variables)]
        super().__init__(name, names, process_set, _ADVICE)
        self._wanted: Any = None

    def now(self) -> bool:
        """Looks; whether that is to be done again."""
        again = self.look([tf.convert_to_tensor(v).numpy() for v in self.variables])
        if not again:
            self.variables = []
        return again

    def in_graph(self) -> Any:
        """Adds the look to the function being traced; returns what comes after it."""
        if self._wanted is None:
            self._wanted = _flag()

        # Python reads the variables. As inputs of the condition they would cost something in every step.
        def look() -> Any:
            return tf.convert_to_tensor(self._wanted.assign(tf.numpy_function(self.now, [], tf.bool)))

        return tf.cond(self._wanted, look, lambda: tf.constant(False))


def _flag() -> Any:
    """A variable that is true. Not tf.Variable's: a function whose first call makes one of those is traced
    twice."""
    from tensorflow.python.ops.resource_variable_ops import ResourceVariable

    with tf.init_scope():  # outside of the function, which is where variables belong
        return ResourceVariable(True, trainable=False, name="horovod_compares_weights")


# Until its first variable is gone: another may have that one's id then.
_watches: Dict[Tuple[Any, ...], _Watch] = {}
_numbers = itertools.count()  # in the order in which the ranks meet them


def _forget() -> None:
    global _numbers
    _watches.clear()
    _numbers = itertools.count()


_basics.at_shutdown(_forget)


def look(name: str, variables: Sequence[Any], process_set: ProcessSet) -> List[Any]:
    """Looks at weights that are about to be updated, unless the ranks have compared them before.

    Returns:
        In a graph, what the update must come after.

    Not in what XLA compiles, nor in TF1 graphs, where nobody would initialise a variable of ours: there the
    weights are noted, and looked at by who has the session.
    """
    if not variables or _xla.inside():
        return []
    if not tf.compat.v1.executing_eagerly_outside_functions():
        with tf.init_scope():
            watches = _watches_of(tf.compat.v1.get_default_graph())
        watches.append(_Watch(f"{name}.weights.{len(watches)}", variables, process_set))
        return []
    key = (name, process_set_id(process_set), len(variables), id(variables[0]))
    if key not in _watches:
        _watches[key] = _Watch(f"{name}.weights.{next(_numbers)}", variables, process_set)
        weakref.finalize(variables[0], _watches.pop, key, None).atexit = False
    if _watches[key].over:
        return []
    if not tf.executing_eagerly():
        return [_watches[key].in_graph()]
    _watches[key].now()
    return []


def look_in_session(session: Any) -> None:
    """Looks at the weights that are trained in a TF1 session, after each of its steps."""
    for watch in _watches_of(session.graph):
        if not watch.over:
            watch.look(session.run(watch.variables))


def _watches_of(graph: Any) -> List[_Watch]:
    """Kept with the graph, and not in one of its collections: those are saved."""
    if not hasattr(graph, "_horovod_weight_watches"):
        graph._horovod_weight_watches = []
    found: List[_Watch] = graph._horovod_weight_watches
    return found
