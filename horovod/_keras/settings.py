# SPDX-License-Identifier: Apache-2.0
"""What a distributed Keras optimizer was asked to do, and the checks of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Tuple

from horovod.common.constants import Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set


@dataclass(frozen=True)
class Settings:
    """The arguments of DistributedOptimizer."""

    op: int = Average
    compression: Any = None
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    groups: Any = None
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True
    backward_passes_per_step: int = 1
    average_aggregated_gradients: bool = False
    local_variables: Tuple[Any, ...] = ()

    def __deepcopy__(self, memo: Any) -> Settings:
        return self  # a copied optimizer reduces over the same ranks


def check(op: int, num_groups: int, groups: Any) -> Any:
    """Refuses what Keras optimizers cannot do; returns `groups`, with num_groups as its predecessor."""
    if op not in (Average, Sum):
        raise ValueError("op currently only supports Average and Sum")
    if groups is None and num_groups:
        groups = num_groups
    if groups is not None and not isinstance(groups, (list, tuple)):
        if isinstance(groups, bool) or not isinstance(groups, int) or groups <= 0:
            raise ValueError("groups should be a non-negative integer or a list of list of tf.Variable.")
    return groups


def weights_of(layers: Any) -> Tuple[Any, ...]:
    """The trainable weights of a layer or several; () for None."""
    if layers is None:
        return ()
    some = list(layers) if isinstance(layers, (list, tuple, set)) else [layers]
    for layer in some:
        if not any(c.__name__ == "Layer" and "keras" in c.__module__ for c in type(layer).__mro__):
            raise ValueError("All local layers must be of tf.keras.layers.Layer type.")
    return tuple(weight for layer in some for weight in layer.trainable_weights)
