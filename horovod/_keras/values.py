# SPDX-License-Identifier: Apache-2.0
"""Collectives on values: a number, an array or a tensor in, a tensor of the Keras backend out."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from horovod._keras import session
from horovod.common.arguments import resolve_op
from horovod.common.constants import Average


class Values:
    """The verbs of a Keras front end.

    Args:
        backend: "tensorflow", whose own kernels are used; on "torch" and "jax" values go through NumPy.
    """

    def __init__(self, backend: str) -> None:
        self._tensorflow = backend == "tensorflow"

    def allreduce(
        self,
        value: Any,
        name: Optional[str] = None,
        average: Optional[bool] = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        op: Optional[int] = None,
        compression: Any = None,
    ) -> Any:
        """Reduces a tensor, an array or a number over all ranks; the average by default.

        Args:
            value: what to reduce.
            name: what the ranks match by.
            average: deprecated, use `op`.
            prescale_factor: multiplies the value before the reduction.
            postscale_factor: multiplies the result.
            op: Average, Sum, ...
            compression: as in `DistributedOptimizer`.
        """
        op = resolve_op(op, average)
        scales: Any = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
        if self._tensorflow:
            import tensorflow as tf

            from horovod.tensorflow import collectives
            from horovod.tensorflow.compression import Compression

            tensor = tf.constant(value, name=name) if not tf.is_tensor(value) else value
            compression = compression or Compression.none
            reduced = collectives.allreduce(tensor, op=op, compression=compression, name=name, **scales)
            return session.value(reduced)
        import horovod.numpy as hvd

        if compression is None:
            return _tensor(hvd.allreduce(_numpy(value), name=name, op=op, **scales))
        sent, context = compression.compress(_tensor(value))
        reduced = _tensor(hvd.allreduce(_numpy(sent), name=name, op=op, **scales))
        return compression.decompress(reduced, context)

    def allgather(self, value: Any, name: Optional[str] = None) -> Any:
        """Concatenates the ranks' values along the first dimension."""
        if self._tensorflow:
            from horovod.tensorflow import collectives

            return session.value(collectives.allgather(value, name=name))
        import horovod.numpy as hvd

        return _tensor(hvd.allgather(_numpy(value), name=name))

    def broadcast(self, value: Any, root_rank: int, name: Optional[str] = None) -> Any:
        """The root's value on every rank."""
        if self._tensorflow:
            from horovod.tensorflow import collectives

            return session.value(collectives.broadcast(value, root_rank, name=name))
        import horovod.numpy as hvd

        return _tensor(hvd.broadcast(_numpy(value), root_rank, name=name))

    def reducescatter(self, value: Any, name: Optional[str] = None, op: int = Average) -> Any:
        """Reduces the ranks' values and gives each rank its share of the rows."""
        if self._tensorflow:
            from horovod.tensorflow import collectives

            return session.value(collectives.reducescatter(value, name=name, op=op))
        import horovod.numpy as hvd

        return _tensor(hvd.reducescatter(_numpy(value), name=name, op=op))


def _numpy(value: Any) -> Any:
    import keras

    return np.asarray(keras.ops.convert_to_numpy(value) if hasattr(value, "shape") else value)


def _tensor(array: Any) -> Any:
    import keras

    return keras.ops.convert_to_tensor(array)
