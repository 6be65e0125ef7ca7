# SPDX-License-Identifier: Apache-2.0
"""Whether the ranks' weights agree after the first step, where TensorFlow's gradient reduction cannot tell:
Keras on PyTorch and JAX, and Keras 2 in TF1 graphs."""

from __future__ import annotations

import functools
import itertools
from typing import Any, Callable, List, Sequence

from horovod.common.process_sets import ProcessSet
from horovod.common.weight_watch import WeightWatch

_ADVICE = (
    "Pass hvd.callbacks.BroadcastGlobalVariablesCallback(0) to fit, and compile the model with the optimizer "
    "that hvd.DistributedOptimizer returns."
)
_numbers = itertools.count()


def watch(variables: Sequence[Any], process_set: ProcessSet) -> WeightWatch:
    """Follows the weights that an optimizer trains."""
    names = [str(getattr(v, "path", getattr(v, "name", i))) for i, v in enumerate(variables)]
    return WeightWatch(f"keras.weights.{next(_numbers)}", names, process_set, _ADVICE)


def follow(model: Any, values: Callable[..., Sequence[Any]]) -> None:
    """Has a model's compiled step look at the weights before it changes them.

    Args:
        model: its `train_function` was just made, or is an older one.
        values: the trainable weights as arrays, from the arguments of `train_function`.
    """
    step = model.train_function
    if step is None or hasattr(step, "_hvd_compares"):
        return
    looks: List[WeightWatch] = []
    calls = itertools.count()

    def look(*args: Any) -> None:
        local = [model.optimizer._hvd.is_local(v) for v in model.trainable_variables]
        if not looks:
            shared = [v for v, own in zip(model.trainable_variables, local) if not own]
            looks.append(watch(shared, model.optimizer.process_set))
        looks[0].look([v for v, own in zip(values(*args), local) if not own])

    @functools.wraps(step)
    def looking(*args: Any, **kwargs: Any) -> Any:
        # Which variables are local may only be known after the first step.
        if next(calls) > 0 and not (looks and looks[0].over):
            look(*args)
        return step(*args, **kwargs)

    looking._hvd_compares = True  # type: ignore[attr-defined]
    model.train_function = looking
