# SPDX-License-Identifier: Apache-2.0
"""Gradient tapes whose gradients are reduced over the ranks."""

from __future__ import annotations

import functools
from typing import Any, List, Optional, Tuple

import tensorflow as tf

from horovod.common.arguments import check_groups, check_predivide
from horovod.common.constants import Average
from horovod.common.local_layers import weights_of
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._reduction import GradientReduction
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.util import variable_key


class _DistributedTape:
    """The methods added to a tape; mixed with the tape's own class."""

    _hvd: GradientReduction

    def register_local_source(self, source: Any) -> None:
        """Keeps the gradient of a source on this rank."""
        self._hvd.register_local(source)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **options: Any,
    ) -> Any:
        """The reduced gradients: a list aligned with `sources`, or a structure like `sources`.

        Args:
            target: what to differentiate.
            sources: variables or watched tensors.
            output_gradients: as in tf.GradientTape.
            use_generic_names: name the ops grad_0, grad_1, ..., for models whose names differ between ranks.
            **options: further arguments of tf.GradientTape.gradient.
        """
        local = super().gradient(target, sources, output_gradients, **options)  # type: ignore[misc]
        if isinstance(sources, (list, tuple)) and not any(tf.nest.is_nested(s) for s in sources):
            return self._hvd(list(local), list(sources), use_generic_names)
        reduced = self._hvd(tf.nest.flatten(local), tf.nest.flatten(sources), use_generic_names)
        return tf.nest.pack_sequence_as(sources, reduced)

    def get_local_and_global_gradients(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False
    ) -> Tuple[List[Tuple[Any, Any]], List[Tuple[Any, Any]]]:
        """(source, gradient) pairs: those kept on this rank, and those reduced."""
        sources = list(sources)
        gradients = self.gradient(target, sources, output_gradients, use_generic_names)
        pairs = list(zip(sources, gradients))
        own = [variable_key(s) in self._hvd.local for s in sources]
        return [p for p, o in zip(pairs, own) if o], [p for p, o in zip(pairs, own) if not o]


@functools.cache
def _class_over(base: Any) -> Any:
    """A tape of this class that reduces. How it does is its own: several may be made of one tape."""
    members = {"__module__": __name__, "__slots__": ("_hvd",), "_hvd_base": base}
    return type(base.__name__, (_DistributedTape, base), members)


def DistributedGradientTape(
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """A tf.GradientTape whose `gradient` reduces over all ranks.

    Wrap the tape before or after recording. The result shares everything with the tape passed.

    Args:
        gradtape: the tape.
        device_dense: accepted for compatibility.
        device_sparse: accepted for compatibility.
        compression: Compression.none, fp16, bf16 or a class with their two methods.
        sparse_as_dense: turn tf.IndexedSlices into dense gradients before reducing.
        op: Average, Sum, Adasum, ...
        gradient_predivide_factor: divide by this before the sum and by size / this after it.
        num_groups: deprecated, use `groups`.
        groups: number of groups to reduce atomically, or a list of lists of variables.
        process_set: the ranks that take part.
        scale_local_gradients: divide the gradients of local sources by the number of ranks.
    """
    check_predivide(gradient_predivide_factor, op)
    groups = check_groups(groups, num_groups, member="tf.Variable")
    base: Any = getattr(gradtape, "_hvd_base", type(gradtape))
    cls = _class_over(base)
    tape = cls.__new__(cls)
    # One set of attributes, so that recording through either object is seen by both.
    object.__setattr__(tape, "__dict__", gradtape.__dict__)
    tape._hvd = GradientReduction(
        "DistributedGradientTape",
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    return tape


def PartialDistributedGradientTape(
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Optional[Any] = None,
    scale_local_gradients: bool = True,
) -> Any:
    """A `DistributedGradientTape` that leaves the gradients of some layers on their rank.

    Args:
        local_layers: a layer or several; the other arguments are those of `DistributedGradientTape`.
    """
    weights = weights_of(local_layers)
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    for weight in weights:
        tape.register_local_source(weight)
    return tape
