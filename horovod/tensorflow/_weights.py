# SPDX-License-Identifier: Apache-2.0
"""Whether the ranks' weights agree after the first step, looked at where gradients are reduced.

In eager mode that is a Python call a step until the answer is there. In a tf.function a variable says whether
somebody still wants to look: once that is over, a step has one condition more.
"""

from __future__ import annotations

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

    def now(self) -> None:
        """Looks, in eager mode."""
        self.look([tf.convert_to_tensor(v).numpy() for v in self.variables])
        if self.over:
            self.variables = []

    def in_graph(self) -> None:
        """Adds the look to the function being traced."""
        if self._wanted is None:
            with tf.init_scope():  # outside of the function, which is where variables belong
                self._wanted = tf.Variable(True, trainable=False, name="horovod_compares_weights")

        def look() -> Any:
            values = [tf.convert_to_tensor(v) for v in self.variables]
            more = tf.numpy_function(lambda *arrays: self.look(arrays), values, tf.bool)
            return tf.convert_to_tensor(self._wanted.assign(more))

        tf.cond(self._wanted, look, lambda: tf.constant(False))


_watches: Dict[Tuple[Any, ...], _Watch] = {}
_basics.at_shutdown(_watches.clear)


def look(name: str, variables: Sequence[Any], process_set: ProcessSet) -> None:
    """Looks at weights that are about to be updated, unless the ranks have compared them before.

    Not in what XLA compiles, nor in TF1 graphs, where nobody would initialise a variable of ours: there the
    weights are noted, and looked at by who has the session.
    """
    if not variables or _xla.inside():
        return
    if not tf.compat.v1.executing_eagerly_outside_functions():
        with tf.init_scope():
            watches = _watches_of(tf.compat.v1.get_default_graph())
        watches.append(_Watch(f"{name}.weights.{len(watches)}", variables, process_set))
        return
    key = (name, process_set_id(process_set), len(variables), id(variables[0]))
    if key not in _watches:
        _watches[key] = _Watch(f"{name}.weights.{len(_watches)}", variables, process_set)
    if _watches[key].over:
        return
    if tf.executing_eagerly():
        _watches[key].now()
    else:
        _watches[key].in_graph()


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
