# SPDX-License-Identifier: Apache-2.0
"""Callbacks for `fit` of tf.keras. Put MetricAverageCallback before callbacks that look at metrics."""

from __future__ import annotations

from tensorflow import keras

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
BestModelCheckpoint = _impl.with_base(_impl.BestModelCheckpoint, keras.callbacks.ModelCheckpoint, __name__)
