# SPDX-License-Identifier: Apache-2.0
"""How a list of gradients is reduced: the rules shared by the optimizers, the tapes and Keras."""

from __future__ import annotations

import copy
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import tensorflow as tf

from horovod.common.basics import basics as _basics
from horovod.common.bundles import bundles
from horovod.common.calls import Call
from horovod.common.constants import Average
from horovod.common.groups import Positions, positions
from horovod.common.process_sets import (
    ProcessSet,
    _temp_process_set_object,
    global_process_set,
    process_set_id,
)
from horovod.common.verbs import ALLREDUCE
from horovod.tensorflow import _forms, _library, _nodes, _weights, _xla
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.util import elastic, known_bytes, on_not_none, variable_key, without_autograph

# Graphs used in eager mode, one for each way of reducing: a tape is wrapped anew at every step, and tracing
# at every step would take far longer than reducing (and keep every graph for ever). They hold the numbers of
# process sets, which mean nothing after a shutdown.
_graphs: Dict[Tuple[Any, ...], Any] = {}
_basics.at_shutdown(_graphs.clear)


class GradientReduction:
    """Reduces gradients over the ranks of a process set.

    Args:
        name: the scope under which the ops are created.
        compression: see `allreduce`.
        sparse_as_dense: turn IndexedSlices into dense tensors first.
        op: the reduction.
        gradient_predivide_factor: with Average, divide by this before and by size / this after the sum.
        groups: None for one op a gradient, a number of groups, or a list of lists of variables.
        process_set: who takes part; the others keep their gradients.
        scale_local_gradients: divide the gradients of local variables by the set's size.
    """

    def __init__(
        self,
        name: str,
        compression: Any = Compression.none,
        sparse_as_dense: bool = False,
        op: int = Average,
        gradient_predivide_factor: float = 1.0,
        groups: Any = None,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        self.name = name
        self.compression = compression
        self.sparse_as_dense = sparse_as_dense
        self.op = op
        self.prescale = 1.0 / gradient_predivide_factor if op == Average else 1.0
        self.postscale = gradient_predivide_factor if op == Average else 1.0
        self.groups = groups
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self.local: Set[Any] = set()

    def register_local(self, variable: Any) -> None:
        """Keeps the gradient of a variable on this rank."""
        self.local.add(variable_key(variable))

    def is_local(self, variable: Any) -> bool:
        """Whether the gradient of a variable stays on this rank."""
        return bool(self.local) and variable_key(variable) in self.local

    def active(self) -> bool:
        """Whether there is anybody to reduce with. In an elastic job there may be at the next step."""
        if self.process_set is not global_process_set and not self.process_set.included():
            return False
        return elastic() or (self.process_set.size() or 1) > 1

    @without_autograph
    def __call__(
        self,
        gradients: Sequence[Any],
        variables: Optional[Sequence[Any]] = None,
        use_generic_names: bool = False,
    ) -> List[Any]:
        """The reduced gradients, local ones scaled instead, None left as None.

        Args:
            gradients: of this rank.
            variables: what they belong to; needed for local variables and groups of variables.
            use_generic_names: name the ops grad_0, grad_1, ..., for models whose names differ between ranks.
        """
        gradients, variables = list(gradients), list(variables or ())
        if not self.active():
            return gradients
        is_local = [self.is_local(v) for v in variables]
        trained = [v for v, local in zip(variables, is_local) if not local]
        is_local += [False] * (len(gradients) - len(is_local))
        shared = [None if local else g for g, local in zip(gradients, is_local)]
        keys: List[Any] = [i for i, g in enumerate(shared) if g is not None]
        if isinstance(self.groups, (list, tuple)):
            keys = [variable_key(variables[i]) for i in keys]
        groups = positions(self.groups, keys, variable_key)
        with tf.control_dependencies(_weights.look(self.name, trained, self.process_set)):
            reduced = on_not_none(lambda some: self._reduce(some, groups, use_generic_names), shared)
        return [self._scaled(g) if local else r for g, r, local in zip(gradients, reduced, is_local)]

    def _scaled(self, gradient: Any) -> Any:
        if gradient is None or not self.scale_local_gradients:
            return gradient
        size = self.process_set.size()
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(gradient.values / size, gradient.indices, gradient.dense_shape)
        return gradient / tf.cast(size, gradient.dtype)

    def _reduce(self, gradients: List[Any], groups: Optional[Positions], generic: bool) -> List[Any]:
        if not gradients:
            return []
        if not tf.executing_eagerly():
            return self._in_graph(gradients, groups, generic)
        number = process_set_id(self.process_set)
        key = (
            self.name,
            self.compression,
            self.sparse_as_dense,
            (self.op, self.prescale, self.postscale),
            groups,
            (number, tuple(_basics.process_set_ranks(number)) if number else ()),
            generic,
        )
        if key not in _graphs:
            # A copy that knows the set by its number: the user's object may be gone when shapes change.
            kept = copy.copy(self)
            kept.process_set = _temp_process_set_object(number)
            _graphs[key] = tf.function(lambda some: kept._in_graph(some, groups, generic), autograph=False)
        return list(_graphs[key](gradients))

    def _in_graph(self, gradients: List[Any], groups: Optional[Positions], generic: bool) -> List[Any]:
        if self.sparse_as_dense:
            gradients = [tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in gradients]
        if groups is None and _xla.inside():
            groups = (tuple(range(len(gradients))),)  # compiled calls block: make one of them
        results: List[Any] = [None] * len(gradients)
        with tf.name_scope(self.name + "_Allreduce"):
            if groups is None and not _library.kernels_defer():
                return self._by_pair(gradients, generic)
            if groups is None:
                for bundle in bundles([known_bytes(g) for g in gradients]):
                    some = [gradients[i] for i in bundle]
                    names = [f"grad_{i}" if generic else None for i in bundle]
                    reduced = _forms.run_each(
                        self._call(some), some, names, self.compression, ignore_name_scope=generic
                    )
                    for i, result in zip(bundle, reduced):
                        results[i] = result
                return results
            for number, group in enumerate(groups):
                some = [gradients[i] for i in group]
                call = self._call(some, f"grad_group_{number}" if generic else None)
                reduced = _forms.run_group(call, some, self.compression, ignore_name_scope=generic)
                for i, result in zip(group, reduced):
                    results[i] = result
        return results

    def _by_pair(self, gradients: List[Any], generic: bool) -> List[Any]:
        """One wait for all dense gradients, for a TensorFlow where each would hold a thread of its own."""
        results = list(gradients)
        dense = [i for i, g in enumerate(gradients) if not isinstance(g, tf.IndexedSlices)]
        pairs = [self.compression.compress(gradients[i]) for i in dense]
        if pairs:
            own = _nodes.op_type(ALLREDUCE)
            names = [f"grad_{i}" if generic else _nodes.default_name(own, [gradients[i]]) for i in dense]
            reduced = _nodes.enqueue_and_wait(self._call(), [sent for sent, _ in pairs], names, generic)
            for i, tensor, (_, context) in zip(dense, reduced, pairs):
                results[i] = self.compression.decompress(tensor, context)
        for i, gradient in enumerate(gradients):
            if isinstance(gradient, tf.IndexedSlices):
                results[i] = _forms.run(self._call([gradient]), gradient)
        return results

    def _call(self, gradients: Sequence[Any] = (), name: Optional[str] = None) -> Call:
        """What is asked of the engine. Rows of sparse gradients cannot be scaled on their way."""
        call = Call(ALLREDUCE, name, process_set_id(self.process_set), self.op)
        if any(isinstance(g, tf.IndexedSlices) for g in gradients):
            return call
        return call._replace(prescale=self.prescale, postscale=self.postscale)


def make_allreduce_grads_fn(
    name: str,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
) -> GradientReduction:
    """A function of (gradients, variables, use_generic_names) that reduces, as other libraries ask for it."""
    return GradientReduction(
        name, compression, sparse_as_dense, op, gradient_predivide_factor, groups, process_set
    )
