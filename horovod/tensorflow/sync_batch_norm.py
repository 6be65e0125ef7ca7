# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation with the moments of the batches of all ranks (Keras 2 and Keras 3 on TensorFlow)."""

from __future__ import annotations

from typing import Any, Tuple

import tensorflow as tf

from horovod.common.basics import basics as _basics
from horovod.common.constants import Sum
from horovod.tensorflow import mpi_ops


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):  # type: ignore[misc]
    """BatchNormalization whose mean and variance are those of all ranks' batches together.

    Ranks may have batches of different sizes: every example counts the same.

    Args:
        fused: must be False; the fused kernel cannot be split for communication.
        **kwargs: those of BatchNormalization.
    """

    def __init__(self, fused: Any = False, **kwargs: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        if hasattr(tf.keras.layers.BatchNormalization, "_fused_can_be_used"):  # Keras 2
            kwargs["fused"] = False
        super().__init__(**kwargs)

    def _moments(self, inputs: Any, *args: Any, **kwargs: Any) -> Tuple[Any, Any]:
        mean, variance = super()._moments(inputs, *args, **kwargs)
        if _basics.size() == 1:
            return mean, variance
        mask = kwargs.get("mask", args[-1] if args else None)
        count = self._count(inputs, mean, mask if isinstance(mask, tf.Tensor) else None)
        flat = [tf.reshape(tf.cast(t, tf.float32), [-1]) for t in (mean, variance)]
        # One small allreduce: sum of x, sum of x squared, number of x.
        sums = tf.concat([flat[0] * count, (flat[1] + flat[0] ** 2) * count, [count]], axis=0)
        sums = mpi_ops._allreduce(sums, name=f"{self.name}_moments", op=Sum)
        channels = tf.size(mean)
        total = sums[-1]
        global_mean = sums[:channels] / total
        global_variance = tf.maximum(sums[channels : 2 * channels] / total - global_mean**2, 0.0)
        return (
            tf.cast(tf.reshape(global_mean, tf.shape(mean)), mean.dtype),
            tf.cast(tf.reshape(global_variance, tf.shape(variance)), variance.dtype),
        )

    @staticmethod
    def _count(inputs: Any, mean: Any, mask: Any) -> Any:
        """How many values each moment was taken over on this rank."""
        if mask is not None:
            return tf.reduce_sum(tf.cast(mask, tf.float32))
        return tf.cast(tf.size(inputs) / tf.size(mean), tf.float32)

    def get_config(self) -> Any:
        """The layer's configuration, without what Keras 2 adds for its fused kernel."""
        config = super().get_config()
        config.pop("fused", None)
        return config
