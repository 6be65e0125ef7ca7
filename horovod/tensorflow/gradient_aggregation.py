# SPDX-License-Identifier: Apache-2.0
"""Local gradient aggregation in TF1 graphs, where variables live in collections."""

from __future__ import annotations

from typing import Any, Callable, Iterable, List

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._aggregation import LocalAggregation
from horovod.tensorflow.util import not_none, on_not_none


def apply_op_to_not_none_tensors(tensor_op: Callable[[Any], Any], tensors: Iterable[Any]) -> List[Any]:
    """Applies an op to each tensor that is not None."""
    return on_not_none(lambda some: [tensor_op(t) for t in some], tensors)


def get_not_none_from_list(tensor_list: Iterable[Any]) -> List[Any]:
    """The tensors that are not None."""
    return not_none(tensor_list)


class LocalGradientAggregationHelper(LocalAggregation):
    """Aggregation for graphs; its variables are local ones: run tf.compat.v1.local_variables_initializer."""

    _OPTIMIZER_TYPE_KERAS = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY = "optimizer_type_legacy"

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[..., List[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: int,
        optimizer_type: str,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        name: str = "",
    ) -> None:
        super().__init__(
            backward_passes_per_step, allreduce_func, sparse_as_dense, average_aggregated_gradients
        )
        self.rank = rank
        self.optimizer_type = optimizer_type
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self.name = name

    def _make_variable(self, name: str, shape: Any, dtype: Any) -> Any:
        with tf.compat.v1.variable_scope(
            f"aggregation_variables_{self.name}{self.rank}", reuse=tf.compat.v1.AUTO_REUSE
        ):
            return tf.compat.v1.get_variable(
                name,
                shape=shape,
                dtype=dtype,
                trainable=False,
                initializer=tf.compat.v1.zeros_initializer(),
                collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
                use_resource=True,
            )
