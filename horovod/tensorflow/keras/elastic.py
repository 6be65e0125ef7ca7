# SPDX-License-Identifier: Apache-2.0
"""Elastic training of tf.keras models."""

from __future__ import annotations

from tensorflow import keras

from horovod._keras import elastic as _impl
from horovod._keras.callbacks import with_base
from horovod._keras.elastic import KerasState
from horovod.tensorflow.elastic import TensorFlowKerasState, checkpoint, run

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "TensorFlowKerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "checkpoint",
    "run",
]

_base = keras.callbacks.Callback
CommitStateCallback = with_base(_impl.CommitStateCallback, _base, __name__)
UpdateBatchStateCallback = with_base(_impl.UpdateBatchStateCallback, _base, __name__)
UpdateEpochStateCallback = with_base(_impl.UpdateEpochStateCallback, _base, __name__)
