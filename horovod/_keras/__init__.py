# SPDX-License-Identifier: Apache-2.0
"""What horovod.keras and horovod.tensorflow.keras share: Keras 3 on any backend, and Keras 2."""

from __future__ import annotations

from typing import Any, Optional

from horovod._keras.settings import Settings, check_op
from horovod.common.arguments import check_groups
from horovod.common.constants import Average
from horovod.common.local_layers import weights_of
from horovod.common.process_sets import ProcessSet, global_process_set


def wrap(optimizer: Any, settings: Settings, name: Optional[str] = None) -> Any:
    """The optimizer, reducing its gradients as the settings say."""
    if hasattr(optimizer, "stateless_apply"):
        from horovod._keras import optimizer3

        return optimizer3.wrap(optimizer, settings, name)
    if hasattr(optimizer, "apply_gradients"):
        from horovod._keras import optimizer2

        return optimizer2.wrap(optimizer, settings, name)
    raise TypeError(
        f"DistributedOptimizer takes an optimizer of Keras 2 or 3, not {optimizer!r}. Make it first, e.g. "
        "keras.optimizers.Adam(0.001 * hvd.size())."
    )


def create_distributed_optimizer(
    optimizer: Any,
    name: Optional[str] = None,
    compression: Any = None,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    local_layers: Any = None,
) -> Any:
    """Checks the arguments of DistributedOptimizer and wraps."""
    check_op(op)
    settings = Settings(
        op=op,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=check_groups(groups, num_groups, member="tf.Variable"),
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        local_variables=weights_of(local_layers),
    )
    return wrap(optimizer, settings, name)
