# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer for TF1 optimizers; Keras optimizers are passed on to horovod.tensorflow.keras."""

from __future__ import annotations

from typing import Any, List, Optional

import tensorflow as tf

from horovod.common.arguments import check_groups, check_predivide
from horovod.common.basics import basics as _basics
from horovod.common.constants import Adasum, Average
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import mpi_ops
from horovod.tensorflow._reduction import GradientReduction
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.util import not_none

_LegacyOptimizer: Any = tf.compat.v1.train.Optimizer  # a name that other libraries use


class _DistributedOptimizer(_LegacyOptimizer):  # type: ignore[misc]
    """A TF1 optimizer whose `compute_gradients` reduces over the ranks."""

    def __init__(
        self,
        optimizer: Any,
        name: str,
        use_locking: bool,
        reduction: GradientReduction,
        backward_passes_per_step: int,
        average_aggregated_gradients: bool,
    ) -> None:
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._hvd = reduction
        self._agg_helper: Optional[LocalGradientAggregationHelper] = None
        if backward_passes_per_step > 1:
            if tf.executing_eagerly():
                raise ValueError(
                    "backward_passes_per_step > 1 is not yet supported for _LegacyOptimizer with eager "
                    "execution."
                )
            self._agg_helper = LocalGradientAggregationHelper(
                backward_passes_per_step,
                self._hvd,
                self._hvd.sparse_as_dense,
                average_aggregated_gradients,
                rank=_basics.rank(),
                optimizer_type=LocalGradientAggregationHelper._OPTIMIZER_TYPE_LEGACY,
                process_set=self._hvd.process_set,
                name=name,
            )

    def register_local_var(self, var: Any) -> None:
        """Keeps the gradient of a variable on this rank."""
        self._hvd.register_local(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> List[Any]:
        """The wrapped optimizer's gradients, reduced."""
        pairs = self._optimizer.compute_gradients(*args, **kwargs)
        gradients, variables = [g for g, _ in pairs], [v for _, v in pairs]
        if self._agg_helper is not None:
            gradients = self._agg_helper.compute_gradients(gradients, variables)
        else:
            gradients = self._hvd(gradients, variables)
        return list(zip(gradients, variables))

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None
    ) -> Any:
        """Applies the gradients; between the N passes of an aggregation only counts the step."""
        grads_and_vars = list(grads_and_vars)
        if self._agg_helper is None:
            return self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name)

        def skip() -> Any:
            return tf.no_op() if global_step is None else global_step.assign_add(1)

        return self._agg_helper.apply_gradients(
            lambda: self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name),
            skip,
            not_none(g for g, _ in grads_and_vars),
        )

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """A slot variable of the wrapped optimizer."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """The slot names of the wrapped optimizer."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """The variables of the wrapped optimizer."""
        return self._optimizer.variables(*args, **kwargs)


class _DistributedAdasumOptimizer(_DistributedOptimizer):
    """Adasum on updates: each rank steps by itself, and the differences are combined.

    Combining what an optimizer would do, instead of gradients, keeps its own scaling of them intact.
    """

    def compute_gradients(self, *args: Any, **kwargs: Any) -> List[Any]:
        """The wrapped optimizer's own gradients."""
        return list(self._optimizer.compute_gradients(*args, **kwargs))

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None
    ) -> Any:
        """Steps locally, then replaces the step by the Adasum of all ranks' steps."""
        grads_and_vars = list(grads_and_vars)
        if not self._hvd.active():
            return self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name)
        variables = [v for g, v in grads_and_vars if g is not None]
        before = [tf.identity(v) for v in variables]
        with tf.control_dependencies(before):
            applied = self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name)
        with tf.control_dependencies([applied] if applied is not None else []):
            updates = []
            for variable, start in zip(variables, before):
                delta = tf.convert_to_tensor(variable.read_value()) - start
                packed, context = self._hvd.compression.compress(delta)
                summed = mpi_ops._allreduce(packed, op=Adasum, process_set=self._hvd.process_set)
                updates.append(variable.assign(start + self._hvd.compression.decompress(summed, context)))
            return tf.group(*updates)


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps an optimizer so that its gradients are reduced over all ranks.

    Args:
        optimizer: a tf.compat.v1.train.Optimizer, or an optimizer of Keras 2 or 3.
        name: of the wrapper.
        use_locking: as in TF1 optimizers.
        device_dense: accepted for compatibility.
        device_sparse: accepted for compatibility.
        compression: Compression.none, fp16, bf16 or a class with their two methods.
        sparse_as_dense: turn tf.IndexedSlices into dense gradients before reducing.
        backward_passes_per_step: add up this many passes locally before reducing and applying.
        op: Average, Sum or (TF1 optimizers) Adasum, ...
        gradient_predivide_factor: divide by this before the sum and by size / this after it.
        average_aggregated_gradients: divide the sum of the passes by their number.
        num_groups: deprecated, use `groups`.
        groups: number of groups to reduce atomically, or a list of lists of variables.
        process_set: the ranks that take part.
        scale_local_gradients: divide the gradients of local variables by the number of ranks.
    """
    check_predivide(gradient_predivide_factor, op)
    if op == Adasum and average_aggregated_gradients:
        raise ValueError("Adasum does not support average_aggregated_gradients == True")
    groups = check_groups(groups, num_groups, member="tf.Variable")
    if not isinstance(optimizer, _LegacyOptimizer):
        if op == Adasum:
            raise ValueError("op == Adasum is not supported yet with Keras")
        from horovod._keras import front_end

        return front_end.DistributedOptimizer(
            optimizer,
            name=name,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            op=op,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            groups=groups,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )
    adasum = op == Adasum and (process_set.size() or 1) > 1
    prefix = "DistributedDelta" if adasum else "Distributed"
    name = name or f"{prefix}{type(optimizer).__name__}"
    reduction = GradientReduction(
        name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    cls = _DistributedAdasumOptimizer if adasum else _DistributedOptimizer
    return cls(
        optimizer, name, use_locking, reduction, backward_passes_per_step, average_aggregated_gradients
    )
