# SPDX-License-Identifier: Apache-2.0
"""Local gradient aggregation: N passes are added up on this rank, the N-th is reduced and applied."""

from __future__ import annotations

from typing import Any, Callable, List, Sequence

import tensorflow as tf

from horovod.tensorflow.util import on_not_none


class LocalAggregation:
    """Accumulators and a counter, correct in eager mode, tf.function and TF1 graphs.

    Subclasses say how a variable is made.

    Args:
        backward_passes_per_step: N.
        allreduce_func: called with gradients (and variables) on every N-th pass.
        sparse_as_dense: turn tf.IndexedSlices into dense gradients.
        average_aggregated_gradients: divide the sum of the N passes by N.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[..., List[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
    ) -> None:
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.backward_passes_per_step = backward_passes_per_step
        self.allreduce_func = allreduce_func
        self.sparse_as_dense = sparse_as_dense
        self.average_aggregated_gradients = average_aggregated_gradients
        self.counter: Any = None
        self._accumulators: List[Any] = []

    def _make_variable(self, name: str, shape: Any, dtype: Any) -> Any:
        raise NotImplementedError

    def _prepare(self, gradients: Sequence[Any]) -> None:
        if self.counter is None:
            self.counter = self._make_variable("aggregation_counter", [], tf.int32)
        for i in range(len(self._accumulators), len(gradients)):
            gradient = gradients[i]
            self._accumulators.append(
                self._make_variable(f"aggregated_gradient_{i}", gradient.shape, gradient.dtype)
            )

    def _dense(self, gradient: Any) -> Any:
        if not isinstance(gradient, tf.IndexedSlices):
            return gradient
        if not self.sparse_as_dense:
            raise ValueError(
                "IndexedSlices are not supported when `backward_passes_per_step` > 1 and "
                "`sparse_as_dense` is False."
            )
        return tf.convert_to_tensor(gradient)

    def compute_gradients(
        self, gradients: Sequence[Any], variables: Sequence[Any] = (), hide_partial: bool = False
    ) -> List[Any]:
        """Adds the gradients up; on every N-th call returns the reduced sums, else the local sums so far.

        Args:
            gradients: of one pass; None where there is none.
            variables: what they belong to.
            hide_partial: zeros instead of local sums, for a caller that decides something from the result.
        """
        places = [g is not None for g in gradients]
        kept = [v for v, present in zip(variables, places) if present]
        return on_not_none(lambda some: self._aggregate(some, kept, hide_partial), gradients)

    def _aggregate(self, gradients: List[Any], variables: List[Any], hide_partial: bool) -> List[Any]:
        gradients = [self._dense(g) for g in gradients]
        self._prepare(gradients)
        accumulators = self._accumulators[: len(gradients)]
        added = [a.assign_add(g) for a, g in zip(accumulators, gradients)]
        added.append(self.counter.assign_add(1))

        def communicate() -> List[Any]:
            reduced = self.allreduce_func([a.read_value() for a in accumulators], variables)
            if self.average_aggregated_gradients:
                reduced = [g / tf.cast(self.backward_passes_per_step, g.dtype) for g in reduced]
            with tf.control_dependencies(reduced):
                cleared = [a.assign(tf.zeros_like(a)) for a in accumulators]
                cleared.append(self.counter.assign(0))
            with tf.control_dependencies(_ops(cleared)):
                return [tf.identity(g) for g in reduced]

        def wait() -> List[Any]:
            if hide_partial:
                return [tf.zeros_like(a) for a in accumulators]
            return [tf.identity(a.read_value()) for a in accumulators]

        with tf.control_dependencies(_ops(added)):
            full = tf.equal(self.counter.read_value(), self.backward_passes_per_step)
            result = tf.cond(full, communicate, wait)
        return list(result) if isinstance(result, (list, tuple)) else [result]

    def apply_gradients(
        self, apply: Callable[[], Any], skip: Callable[[], Any], gradients: Sequence[Any] = ()
    ) -> Any:
        """Calls `apply` on every N-th pass and `skip` on the others, after `compute_gradients`."""
        if self.counter is None:
            return apply()

        def run(action: Callable[[], Any]) -> Callable[[], Any]:
            def branch() -> Any:
                done = action()
                with tf.control_dependencies(_ops([done])):
                    return tf.constant(True)

            return branch

        with tf.control_dependencies([g for g in gradients if g is not None]):
            updating = tf.equal(self.counter.read_value(), 0)
            return tf.cond(updating, run(apply), run(skip))


def _ops(values: Sequence[Any]) -> List[Any]:
    """What can be depended on among results of variable assignments (none of it in eager mode)."""
    if tf.executing_eagerly():
        return []
    return [v for v in values if isinstance(v, (tf.Tensor, tf.Operation, tf.Variable)) or hasattr(v, "op")]
