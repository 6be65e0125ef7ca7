# SPDX-License-Identifier: Apache-2.0
"""What the wrapped optimizers of Keras 2 and Keras 3 have in common.

A wrapped optimizer is a second object over the attributes of the one passed: learning rate, variables and
slots are the same, so a schedule or a checkpoint that holds either of them sees both. Its `__class__` is the
original class, which is what Keras writes into a saved model: the model loads where Horovod is not installed.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

from horovod._keras.settings import Settings


class CallableList(List[Any]):
    """A list that may also be called, as `optimizer.variables()` was in Keras 2."""

    def __call__(self) -> CallableList:
        return self


class WrappedOptimizer:
    """The methods put in front of an optimizer's own; a mixin for each Keras version adds when to reduce."""

    _hvd: Any  # the reduction; on the class, because attributes are shared with the unwrapped optimizer
    _hvd_settings: Settings
    _hvd_base: Any

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

    # Programs call these two, or put functions of their own in their place.

    def _allreduce_grads(
        self, grads: Sequence[Any], vars: Optional[Sequence[Any]] = None, use_generic_names: bool = False
    ) -> List[Any]:
        """The gradients, reduced now."""
        return list(self._hvd(grads, vars, use_generic_names))

    def _allreduce(self, grads: Sequence[Any], vars: Sequence[Any]) -> List[Any]:
        """The gradients to apply."""
        return self._allreduce_grads(grads, vars)


def make_class(mixin: type, base: Any, reduce: Any, settings: Settings, **attributes: Any) -> Any:
    """A class that behaves like `base`, says it is `base`, and reduces."""
    return type(
        base.__name__,
        (mixin, base),
        {
            "__module__": "horovod._keras",
            "__class__": property(lambda self: base),
            "_hvd": reduce,
            "_hvd_base": base,
            "_hvd_settings": settings,
            **attributes,
        },
    )


def over(cls: Any, optimizer: Any) -> Any:
    """An object of another class over the attributes of an optimizer."""
    made = cls.__new__(cls)
    object.__setattr__(made, "__dict__", optimizer.__dict__)
    return made
