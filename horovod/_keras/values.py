# SPDX-License-Identifier: Apache-2.0
"""Collectives on values: a number, an array or a tensor in, a tensor of the Keras backend out."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from horovod.common.arguments import resolve_op


def _numpy(value: Any) -> Any:
    import keras

    return np.asarray(keras.ops.convert_to_numpy(value) if hasattr(value, "shape") else value)


def _tensor(array: Any) -> Any:
    import keras

    return keras.ops.convert_to_tensor(array)


def allreduce(backend: str, value: Any, name: Optional[str], op: int, compression: Any, **scales: Any) -> Any:
    """See `horovod.keras.allreduce`."""
    op = resolve_op(op)
    if backend == "tensorflow":
        import tensorflow as tf

        from horovod.tensorflow import _collectives
        from horovod.tensorflow.compression import Compression

        tensor = tf.constant(value, name=name) if not tf.is_tensor(value) else value
        return _evaluate(
            _collectives.allreduce(
                tensor, op=op, compression=compression or Compression.none, name=name, **scales
            )
        )
    import horovod.numpy as hvd

    return _tensor(hvd.allreduce(_numpy(value), name=name, op=op, **scales))


def allgather(backend: str, value: Any, name: Optional[str]) -> Any:
    """See `horovod.keras.allgather`."""
    if backend == "tensorflow":
        from horovod.tensorflow import mpi_ops

        return _evaluate(mpi_ops.allgather(value, name=name))
    import horovod.numpy as hvd

    return _tensor(hvd.allgather(_numpy(value), name=name))


def broadcast(backend: str, value: Any, root_rank: int, name: Optional[str]) -> Any:
    """See `horovod.keras.broadcast`."""
    if backend == "tensorflow":
        from horovod.tensorflow import mpi_ops

        return _evaluate(mpi_ops.broadcast(value, root_rank, name=name))
    import horovod.numpy as hvd

    return _tensor(hvd.broadcast(_numpy(value), root_rank, name=name))


def reducescatter(backend: str, value: Any, name: Optional[str], op: int) -> Any:
    """See `horovod.keras.reducescatter`."""
    if backend == "tensorflow":
        from horovod.tensorflow import _collectives

        return _evaluate(_collectives.reducescatter(value, name=name, op=op))
    import horovod.numpy as hvd

    return _tensor(hvd.reducescatter(_numpy(value), name=name, op=op))


def _evaluate(tensor: Any) -> Any:
    """The tensor itself in eager mode and inside functions; its value in the session of a TF1 Keras."""
    import tensorflow as tf

    if tf.executing_eagerly() or tf.inside_function():
        return tensor
    return tf.compat.v1.keras.backend.get_session().run(tensor)
