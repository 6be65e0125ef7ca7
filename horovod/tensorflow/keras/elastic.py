# SPDX-License-Identifier: Apache-2.0
"""Elastic training of tf.keras models."""

from __future__ import annotations

from tensorflow import keras

from horovod._keras import elastic as _impl
from horovod._keras.elastic import KerasState
from horovod.tensorflow.elastic import TensorFlowKerasState, run

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "TensorFlowKerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]


class CommitStateCallback(_impl.CommitState, keras.callbacks.Callback):
    """Commits the state every `batches_per_commit` batches and at the end of each epoch."""


class UpdateBatchStateCallback(_impl.UpdateBatchState, keras.callbacks.Callback):
    """Keeps `state.batch`; an interrupted epoch goes on where it stopped."""


class UpdateEpochStateCallback(_impl.UpdateEpochState, keras.callbacks.Callback):
    """Keeps `state.epoch`, counted over restarts."""
