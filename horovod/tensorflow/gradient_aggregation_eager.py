# SPDX-License-Identifier: Apache-2.0
"""Local gradient aggregation in eager mode and tf.function."""

from __future__ import annotations

from typing import Any, Callable, List

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow._aggregation import LocalAggregation


class LocalGradientAggregationHelperEager(LocalAggregation):
    """Aggregation with TF2 variables, made at the first pass (also while a function is traced)."""

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[..., List[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        super().__init__(
            backward_passes_per_step, allreduce_func, sparse_as_dense, average_aggregated_gradients
        )
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        with tf.init_scope():
            self.counter = self._make_variable("aggregation_counter", [], tf.int32)

    def _make_variable(self, name: str, shape: Any, dtype: Any) -> Any:
        with tf.init_scope():  # outside of the function being traced, which is where variables belong
            return tf.Variable(tf.zeros(shape, dtype), trainable=False, name=name)
