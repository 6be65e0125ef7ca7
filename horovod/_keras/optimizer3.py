# SPDX-License-Identifier: Apache-2.0
"""Keras 3 optimizers that reduce their gradients, on any backend: in `apply`, before anything uses them."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

from horovod._keras import models, stack_search
from horovod._keras.backends import keras_backend, reduction
from horovod._keras.settings import Settings
from horovod._keras.wrapped import CallableList, WrappedOptimizer, make_class, over


class DistributedMixin(WrappedOptimizer):
    """When an optimizer of Keras 3 reduces."""

    _hvd_reduced = False  # set while a loss-scaling optimizer around this one has reduced already
    _hvd_variables: Sequence[Any] = ()

    @property
    def variables(self) -> CallableList:
        """All variables of the optimizer; also callable, as in Keras 2."""
        return CallableList(super().variables)  # type: ignore[misc]

    def __setattr__(self, name: str, value: Any) -> None:
        """As in Keras. A loss scaler sets `loss_scale_factor` on the optimizer it is made for.

        Not a property, because Keras on TensorFlow does not assign a value that is there already.
        """
        super().__setattr__(name, value)
        if name == "loss_scale_factor":
            self._hvd_notice_scaler()

    def _hvd_notice_scaler(self) -> None:
        scaler = stack_search.find(lambda o: getattr(o, "inner_optimizer", None) is self)
        if scaler is not None and not isinstance(scaler, DistributedMixin):
            # It decides from local gradients whether to skip a step. Ranks must decide alike, so it, and not
            # this optimizer, has to reduce.
            cls = make_class(DistributedMixin, type(scaler), self._hvd, self._hvd_settings)
            object.__setattr__(scaler, "__class__", cls)

    def _hvd_reduce(self, grads: Sequence[Any], variables: Optional[Sequence[Any]]) -> List[Any]:
        if variables is None:
            variables = self._trainable_variables  # type: ignore[attr-defined]
        inner: Any = getattr(self, "inner_optimizer", None)  # of a loss scaler
        reducer = inner if hasattr(inner, "_allreduce") else self
        return list(reducer._allreduce(list(grads), list(variables)))

    def apply(self, grads: Any, trainable_variables: Optional[Sequence[Any]] = None) -> Any:
        """Reduces the gradients and applies them."""
        grads = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        if self._hvd_reduced or not grads:
            return super().apply(grads, trainable_variables)  # type: ignore[misc]
        if getattr(self, "gradient_accumulation_steps", None):  # reduced once a step, by _clip_gradients
            return super().apply(grads, trainable_variables)  # type: ignore[misc]
        grads = self._hvd_reduce(grads, trainable_variables)
        with _reduced(getattr(self, "inner_optimizer", None)):
            return super().apply(grads, trainable_variables)  # type: ignore[misc]

    def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        """As `apply`, for JAX. A loss scaler reduces here, before it looks for infinities."""
        inner = getattr(self, "inner_optimizer", None)
        if inner is not None:
            grads = self._hvd_reduce(grads, None)
        with _reduced(inner):
            return super().stateless_apply(optimizer_variables, grads, trainable_variables)  # type: ignore[misc]

    def _backend_apply_gradients(self, grads: Any, trainable_variables: Any) -> Any:
        object.__setattr__(self, "_hvd_variables", list(trainable_variables))
        return super()._backend_apply_gradients(grads, trainable_variables)  # type: ignore[misc]

    def _clip_gradients(self, grads: Any) -> Any:
        """Keras calls this once a step, on the mean of the accumulated gradients when there are several."""
        steps = getattr(self, "gradient_accumulation_steps", None)
        settings = self._hvd_settings
        if steps and settings.backward_passes_per_step > 1 and not settings.average_aggregated_gradients:
            grads = [None if g is None else g * steps for g in grads]
        if steps and not self._hvd_reduced:
            grads = self._hvd_reduce(grads, self._hvd_variables)
        return super()._clip_gradients(grads)  # type: ignore[misc]

    def __reduce__(self) -> Any:
        return wrap, (over(self._hvd_base, self), self._hvd_settings)


class _reduced:
    """While active, an inner optimizer takes its gradients as reduced."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def __enter__(self) -> None:
        if self.optimizer is not None:
            object.__setattr__(self.optimizer, "_hvd_reduced", True)

    def __exit__(self, *_: Any) -> None:
        if self.optimizer is not None:
            object.__setattr__(self.optimizer, "_hvd_reduced", False)


def wrap(optimizer: Any, settings: Settings, name: Optional[str] = None) -> Any:
    """The optimizer, reducing. Wrapping a wrapped one changes its settings."""
    base = getattr(optimizer, "_hvd_base", type(optimizer))
    if name is not None:
        optimizer.name = name
    if settings.backward_passes_per_step > 1:
        # Wrapped before, or loaded with a model that was trained so, it has as many.
        if optimizer.gradient_accumulation_steps not in (None, settings.backward_passes_per_step):
            raise ValueError(
                f"The optimizer has gradient_accumulation_steps={optimizer.gradient_accumulation_steps}: do "
                "not give another backward_passes_per_step as well."
            )
        optimizer.gradient_accumulation_steps = settings.backward_passes_per_step
    reduce = reduction(settings, keras_backend(), f"Distributed{base.__name__}")
    models.watch_keras3(keras_backend())
    return over(make_class(DistributedMixin, base, reduce, settings), optimizer)
