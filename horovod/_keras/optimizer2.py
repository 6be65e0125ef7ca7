# SPDX-License-Identifier: Apache-2.0
"""Keras 2 (tf_keras) optimizers that reduce their gradients, both its current and its legacy classes.

`fit` and `minimize` go through compute_gradients, TF1 graphs through get_gradients, custom loops often call
apply_gradients alone, and a loss scaler in between calls aggregate_gradients before it looks for infinities:
whichever comes first reduces.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from horovod._keras import models, session
from horovod._keras.backends import reduction
from horovod._keras.settings import Settings
from horovod._keras.wrapped import CallableList, WrappedOptimizer, make_class, over
from horovod.tensorflow._aggregation import LocalAggregation
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

_TRACED = -1  # instead of the number of the step, while a function or a graph is built


class DistributedMixin(WrappedOptimizer):
    """When an optimizer of Keras 2 reduces."""

    _HAS_AGGREGATE_GRAD = True
    _agg_helper: Any
    _hvd_reduced_at: Any = None  # when the gradients on their way to apply_gradients were reduced

    def _hvd_now(self) -> Any:
        """The number of the step. It tells a reduction whose step a loss scaler skipped: the step is counted
        but never gets to apply_gradients. Tracing visits both branches, so there is no such case there."""
        return int(self.iterations.numpy()) if tf.executing_eagerly() else _TRACED  # type: ignore[attr-defined]

    def _hvd_is_reduced(self) -> bool:
        if self._hvd_reduced_at in (None, _TRACED):
            return self._hvd_reduced_at is not None
        return self._hvd_now() in (_TRACED, self._hvd_reduced_at)

    def _allreduce(self, grads: Sequence[Any], vars: Sequence[Any]) -> List[Any]:
        """The gradients to apply: reduced, or added up until there were enough passes."""
        if self._agg_helper is None:
            return self._allreduce_grads(grads, vars)
        self._agg_helper.allreduce_func = self._allreduce_grads
        return list(self._agg_helper.compute_gradients(grads, vars, hide_partial=self._hvd_scaled()))

    def _hvd_scaled(self) -> bool:
        """Whether a loss scaler is around this optimizer. Every pass it looks for infinities, and may then
        change the scale: gradients of several passes must be added up after it has divided by the scale, and
        only their reduced sum may be seen by it, or ranks would go different ways."""
        return bool(getattr(self, "_is_wrapped_by_loss_scale_optimizer", False))

    def _hvd_pairs(self, pairs: Any) -> List[Any]:
        pairs = list(pairs)
        variables = [v for _, v in pairs]
        object.__setattr__(self, "_hvd_reduced_at", self._hvd_now())
        return list(zip(self._allreduce([g for g, _ in pairs], variables), variables))

    def _hvd_computed(self, pairs: Any) -> List[Any]:
        if self._agg_helper is not None and self._hvd_scaled():
            return list(pairs)  # the scaler will ask for aggregate_gradients
        return self._hvd_pairs(pairs)

    def _hvd_pairs_once(self, pairs: Any) -> List[Any]:
        return list(pairs) if self._hvd_is_reduced() else self._hvd_pairs(pairs)

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> List[Any]:
        """The reduced gradients (current optimizers)."""
        return self._hvd_computed(super().compute_gradients(loss, var_list, tape))  # type: ignore[misc]

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> List[Any]:
        """The reduced gradients (legacy optimizers)."""
        return self._hvd_computed(
            super()._compute_gradients(loss, var_list, grad_loss, tape)  # type: ignore[misc]
        )

    def get_gradients(self, loss: Any, params: Any) -> List[Any]:
        """The reduced gradients (legacy optimizers in graphs)."""
        params = tf.nest.flatten(params)
        pairs = zip(super().get_gradients(loss, params), params)  # type: ignore[misc]
        return [gradient for gradient, _ in self._hvd_computed(pairs)]

    def aggregate_gradients(self, grads_and_vars: Any) -> List[Any]:
        """The reduced gradients (current optimizers)."""
        return self._hvd_pairs_once(grads_and_vars)

    def _aggregate_gradients(self, grads_and_vars: Any) -> List[Any]:
        """The reduced gradients (legacy optimizers)."""
        return self._hvd_pairs_once(grads_and_vars)

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Applies the gradients, reducing them first unless that was done."""
        pairs = self._hvd_pairs_once(grads_and_vars)
        try:
            return self._hvd_apply(pairs, *args, **kwargs)
        finally:
            object.__setattr__(self, "_hvd_reduced_at", None)

    def _hvd_apply(self, pairs: List[Any], *args: Any, **kwargs: Any) -> Any:
        apply = super().apply_gradients  # type: ignore[misc]
        if self._agg_helper is None:
            return apply(pairs, *args, **kwargs)
        self._hvd_create_variables([v for _, v in pairs])
        applied = self._agg_helper.apply_gradients(
            lambda: apply(pairs, *args, **kwargs),
            lambda: self.iterations.assign_add(1),  # type: ignore[attr-defined]
            [g for g, _ in pairs],
        )
        if hasattr(self, "_create_all_weights") and not tf.executing_eagerly():
            return applied  # legacy optimizers return what has to be run
        return self.iterations  # type: ignore[attr-defined]

    def _hvd_create_variables(self, variables: List[Any]) -> None:
        """Slots cannot be made inside a condition."""
        with tf.init_scope():
            if hasattr(self, "_create_all_weights"):
                self._create_all_weights(variables)
            else:
                self.build(variables)  # type: ignore[attr-defined]


class _CurrentMixin(DistributedMixin):
    """Optimizers since Keras 2.11, whose `variables` became a property."""

    @property
    def variables(self) -> CallableList:
        """All variables of the optimizer; also callable."""
        inner = super().variables  # type: ignore[misc]
        return CallableList(inner() if callable(inner) and not isinstance(inner, list) else inner)


class _AggregationInSession(LocalAggregation):
    """Aggregation in a TF1 graph, with variables that Keras' session initialises."""

    def _make_variable(self, name: str, shape: Any, dtype: Any) -> Any:
        return session.backend().variable(np.zeros(shape, dtype.as_numpy_dtype), dtype.name, name)


def wrap(optimizer: Any, settings: Settings, name: Optional[str] = None) -> Any:
    """The optimizer, reducing."""
    base = getattr(optimizer, "_hvd_base", type(optimizer))
    legacy = hasattr(base, "_create_all_weights")
    if session.in_graph() and not legacy:
        raise ValueError(
            f"In a TF1 graph Keras 2 trains with its legacy optimizers only: use "
            f"tf.keras.optimizers.legacy.{base.__name__} instead of tf.keras.optimizers.{base.__name__}."
        )
    if session.in_graph():
        models.watch_keras2_in_graphs()
    reduce = reduction(settings, "tensorflow", f"Distributed{base.__name__}")
    cls = make_class(
        DistributedMixin if legacy else _CurrentMixin,
        base,
        reduce,
        settings,
        _agg_helper=_helper(settings, reduce),
    )
    if name is not None:
        setattr(optimizer, "_name" if legacy else "name", name)
    return over(cls, optimizer)


def _helper(settings: Settings, reduce: Any) -> Optional[LocalAggregation]:
    if settings.backward_passes_per_step <= 1:
        return None
    common = (
        settings.backward_passes_per_step,
        reduce,
        settings.sparse_as_dense,
        settings.average_aggregated_gradients,
    )
    if session.in_graph():
        return _AggregationInSession(*common)
    return LocalGradientAggregationHelperEager(
        *common, process_set=settings.process_set, scale_local_gradients=settings.scale_local_gradients
    )
