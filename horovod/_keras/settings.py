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


def check_op(op: int) -> None:
    """Refuses reductions that Keras optimizers cannot use."""
    if op not in (Average, Sum):
        raise ValueError("op currently only supports Average and Sum")
