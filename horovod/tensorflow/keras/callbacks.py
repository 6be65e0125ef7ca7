# SPDX-License-Identifier: Apache-2.0
"""Callbacks for `fit` of tf.keras. Put MetricAverageCallback before callbacks that look at metrics."""

from __future__ import annotations

from typing import Any, Optional

from tensorflow import keras

from horovod._keras import callbacks as _impl

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BroadcastGlobalVariablesCallback(_impl.BroadcastGlobalVariables, keras.callbacks.Callback):
    """Starts all ranks with the root's weights and optimizer state.

    Args:
        root_rank: the rank whose values are taken.
        device: accepted for compatibility.
        local_variables: variables to leave alone.
    """


class MetricAverageCallback(_impl.MetricAverage, keras.callbacks.Callback):
    """Averages the metrics over all ranks at the end of each epoch.

    Args:
        device: accepted for compatibility.
    """


class LearningRateScheduleCallback(_impl.LearningRateSchedule, keras.callbacks.Callback):
    """Sets the learning rate to initial_lr * multiplier(epoch) between two epochs.

    Args:
        initial_lr: the rate to start from.
        multiplier: a function of the epoch, or a number m, meaning m ** (epoch - start_epoch).
        start_epoch: first epoch to adjust.
        end_epoch: first epoch not to adjust any more.
        staircase: once an epoch; else every batch, with fractions of epochs.
        momentum_correction: scale momentum with the rate for the batch in which it changes.
        steps_per_epoch: batches in an epoch; found out when not given.
    """


class LearningRateWarmupCallback(_impl.LearningRateWarmup, keras.callbacks.Callback):
    """Raises the rate from initial_lr / size to initial_lr over the first epochs.

    Args:
        initial_lr: the rate to reach, already scaled by the number of ranks; the optimizer's by default.
        warmup_epochs: how many epochs it takes.
        momentum_correction: as in LearningRateScheduleCallback.
        steps_per_epoch: batches in an epoch; found out when not given.
        verbose: 1 to print when it is done.
    """


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """ModelCheckpoint that keeps the best model only.

    Args:
        monitor: the metric to look at.
        verbose: 1 to print when it saves.
        save_weights_only: leave the architecture and the optimizer out.
        mode: "min", "max" or "auto".
        save_freq: "epoch" or a number of batches.
        filepath: where to; may also be set later, before training.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
        filepath: Optional[str] = None,
    ) -> None:
        placeholder = "best.weights.h5" if save_weights_only else "best.keras"
        super().__init__(
            filepath=filepath or placeholder,
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath = filepath
