# SPDX-License-Identifier: Apache-2.0
"""Callbacks for `fit`. Put MetricAverageCallback before callbacks that look at metrics."""

from __future__ import annotations

from typing import Any, Optional

import keras

from horovod._keras import callbacks as _impl

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "MetricsCallback",
]

_base = keras.callbacks.Callback
BroadcastGlobalVariablesCallback = _impl.with_base(_impl.BroadcastGlobalVariablesCallback, _base, __name__)
MetricAverageCallback = _impl.with_base(_impl.MetricAverageCallback, _base, __name__)
MetricsCallback = _impl.with_base(_impl.MetricsCallback, _base, __name__)
LearningRateScheduleCallback = _impl.with_base(_impl.LearningRateScheduleCallback, _base, __name__)
LearningRateWarmupCallback = _impl.with_base(_impl.LearningRateWarmupCallback, _base, __name__)
_best = _impl.with_base(_impl.BestModelCheckpoint, keras.callbacks.ModelCheckpoint, __name__)


class BestModelCheckpoint(_best):  # type: ignore[misc, valid-type]
    """ModelCheckpoint that keeps the best model only.

    Args:
        monitor: the metric to look at.
        verbose: 1 to print when it saves.
        mode: "min", "max" or "auto".
        save_freq: "epoch" or a number of batches.
        save_weights_only: leave the architecture and the optimizer out; third in horovod.tensorflow.keras.
        filepath: where to; may also be set later, before training.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: Any = "epoch",
        save_weights_only: bool = False,
        filepath: Optional[str] = None,
    ) -> None:
        super().__init__(monitor, verbose, save_weights_only, mode, save_freq, filepath)
