# SPDX-License-Identifier: Apache-2.0
"""Keras 2 (tf_keras) optimizers that reduce their gradients, both its current and its legacy classes.

`fit` and `minimize` go through compute_gradients, custom loops often call apply_gradients alone, and a loss
scaler in between calls aggregate_gradients before it looks for infinities: whichever comes first reduces. As
with Keras 3, the wrapped optimizer shares all attributes with the one passed and keeps its class in saved
models.
"""

from __future__ import annotations

from typing import Any, List, Optional

import tensorflow as tf

from horovod._keras.backends import reduction
from horovod._keras.optimizer3 import CallableList
from horovod._keras.settings import Settings
from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

_TRACED = -1  # instead of the number of the step, while a function or a graph is built


class DistributedMixin:
    """The methods put in front of an optimizer's own."""

    _HAS_AGGREGATE_GRAD = True
    _hvd: Any
    _hvd_settings: Settings
    _hvd_base: Any
    _agg_helper: Any
    _hvd_reduced_at: Any = None  # when the gradients on their way to apply_gradients were reduced

    @property
    def process_set(self) -> Any:
        """The ranks that take part."""
        return self._hvd_settings.process_set

    @property
    def scale_local_gradients(self) -> bool:
        """Whether local gradients are divided by the number of ranks."""
        return self._hvd_settings.scale_local_gradients

    def register_local_var(self, var: Any) -> None:
        """Keeps the gradient of a variable on this rank."""
        self._hvd.register_local(var)

    def _hvd_now(self) -> Any:
        """The number of the step. It tells a reduction whose step a loss scaler skipped: the step is counted
        but never gets to apply_gradients. Tracing visits both branches, so there is no such case there."""
        return int(self.iterations.numpy()) if tf.executing_eagerly() else _TRACED  # type: ignore[attr-defined]

    def _hvd_is_reduced(self) -> bool:
        if self._hvd_reduced_at in (None, _TRACED):
            return self._hvd_reduced_at is not None
        return self._hvd_now() in (_TRACED, self._hvd_reduced_at)

    def _hvd_reduce(self, gradients: List[Any], variables: List[Any]) -> List[Any]:
        object.__setattr__(self, "_hvd_reduced_at", self._hvd_now())
        if self._agg_helper is not None:
            return list(self._agg_helper.compute_gradients(gradients, variables))
        return list(self._hvd(gradients, variables))

    def _hvd_pairs(self, pairs: Any) -> List[Any]:
        pairs = list(pairs)
        variables = [v for _, v in pairs]
        return list(zip(self._hvd_reduce([g for g, _ in pairs], variables), variables))

    def _hvd_pairs_once(self, pairs: Any) -> List[Any]:
        return list(pairs) if self._hvd_is_reduced() else self._hvd_pairs(pairs)

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> List[Any]:
        """The reduced gradients (current optimizers)."""
        return self._hvd_pairs(super().compute_gradients(loss, var_list, tape))  # type: ignore[misc]

    def _compute_gradients(
        self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None
    ) -> List[Any]:
        """The reduced gradients (legacy optimizers)."""
        return self._hvd_pairs(
            super()._compute_gradients(loss, var_list, grad_loss, tape)  # type: ignore[misc]
        )

    def get_gradients(self, loss: Any, params: Any) -> List[Any]:
        """The reduced gradients (legacy optimizers in graphs)."""
        return self._hvd_reduce(super().get_gradients(loss, params), list(params))  # type: ignore[misc]

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
        self._agg_helper.apply_gradients(
            lambda: apply(pairs, *args, **kwargs),
            lambda: self.iterations.assign_add(1),  # type: ignore[attr-defined]
            [g for g, _ in pairs],
        )
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


def wrap(optimizer: Any, settings: Settings, name: Optional[str] = None) -> Any:
    """The optimizer, reducing."""
    base = getattr(optimizer, "_hvd_base", type(optimizer))
    legacy = hasattr(base, "_create_all_weights")
    reduce = reduction(settings, "tensorflow", f"Distributed{base.__name__}")
    cls: Any = type(
        base.__name__,
        (DistributedMixin if legacy else _CurrentMixin, base),
        {
            "__module__": "horovod._keras",
            "__class__": property(lambda self: base),
            "_hvd": reduce,
            "_hvd_base": base,
            "_hvd_settings": settings,
            "_agg_helper": _helper(settings, reduce),
        },
    )
    if name is not None:
        setattr(optimizer, "_name" if legacy else "name", name)
    wrapped = cls.__new__(cls)
    object.__setattr__(wrapped, "__dict__", optimizer.__dict__)
    return wrapped


def _helper(settings: Settings, reduce: Any) -> Optional[LocalGradientAggregationHelperEager]:
    if settings.backward_passes_per_step <= 1:
        return None
    return LocalGradientAggregationHelperEager(
        settings.backward_passes_per_step,
        reduce,
        settings.sparse_as_dense,
        settings.average_aggregated_gradients,
        process_set=settings.process_set,
        scale_local_gradients=settings.scale_local_gradients,
    )
