# SPDX-License-Identifier: Apache-2.0
"""An MXNet optimizer that reduces gradients over the ranks first; for Module and custom loops."""

from __future__ import annotations

from typing import Any, Dict, List

import mxnet as mx

from horovod.common.constants import Sum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list
from horovod.mxnet.mpi_ops import allreduce_, grouped_allreduce_

_OWN = ("_optimizer", "_gradient_predivide_factor", "_num_groups", "_process_set")


class DistributedOptimizer(mx.optimizer.Optimizer):  # type: ignore[misc]
    """Wraps an optimizer: gradients are summed over the ranks, and `rescale_grad` makes that the mean.

    Args:
        optimizer: any `mx.optimizer.Optimizer`. What is read or set on the wrapper is the wrapped one's.
        gradient_predivide_factor: divide by this before the sum, and by size over this after it.
        num_groups: send lists of gradients in this many grouped operations; 0 sends each by itself.
        process_set: the ranks that take part; other ranks update with their own gradients.
    """

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        # The base class is not initialised: all its attributes are the wrapped optimizer's.
        self._optimizer = optimizer
        self._gradient_predivide_factor = float(gradient_predivide_factor)
        self._num_groups = num_groups
        self._process_set = process_set
        if process_set.included():
            optimizer.rescale_grad *= self._gradient_predivide_factor / (process_set.size() or 1)

    def __getattr__(self, item: str) -> Any:
        if item in _OWN:  # not set yet, e.g. while unpickling
            raise AttributeError(item)
        return getattr(self._optimizer, item)

    def __setattr__(self, key: str, value: Any) -> None:
        if key in _OWN:
            object.__setattr__(self, key, value)
        else:
            setattr(self._optimizer, key, value)

    def create_state(self, index: int, weight: Any) -> Any:
        """The wrapped optimizer's state for a weight."""
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: int, weight: Any) -> Any:
        """The wrapped optimizer's state for a weight, with a float32 copy where it keeps one."""
        return self._optimizer.create_state_multi_precision(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Reduces the gradient, or list of gradients, and updates the weights."""
        self._allreduce(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """As `update`, for optimizers that keep float32 copies of float16 weights."""
        self._allreduce(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def set_learning_rate(self, lr: float) -> None:
        """Sets the wrapped optimizer's learning rate."""
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Any) -> None:
        """Sets the wrapped optimizer's multipliers of the learning rate."""
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Any) -> None:
        """Sets the wrapped optimizer's multipliers of the weight decay."""
        self._optimizer.set_wd_mult(args_wd_mult)

    def _allreduce(self, index: Any, grad: Any) -> None:
        process_set = self._process_set
        if not process_set.included() or process_set.size() == 1:
            return
        options: Dict[str, Any] = {
            "op": Sum,
            "prescale_factor": 1.0 / self._gradient_predivide_factor,
            "process_set": process_set,
        }
        if not isinstance(index, (tuple, list)):
            allreduce_(grad, name=str(index), priority=-index, **options)
        elif self._num_groups > 0:
            for i, (indices, grads) in enumerate(_groups(index, grad, self._num_groups)):
                grouped_allreduce_(grads, name=f"{indices[0]}:{indices[-1]}", priority=-i, **options)
        else:
            for i, one in enumerate(index):
                allreduce_(grad[i], name=str(one), priority=-i, **options)


def _groups(indices: Any, grads: Any, count: int) -> List[Any]:
    parts = zip(split_list(list(indices), count), split_list(list(grads), count))
    return [(i, g) for i, g in parts if i]
