# SPDX-License-Identifier: Apache-2.0
"""What the callbacks do; the callbacks modules of the two front ends give them their Keras' base class.

They run in any Keras: version 3 on any backend, and version 2, eager or in TF1 graphs. Batches are heard of
through `on_batch_begin` and `on_batch_end`, which programs that extend or patch a callback know.
"""

from __future__ import annotations

from horovod._keras.callbacks.base import with_base
from horovod._keras.callbacks.best_model import BestModelCheckpoint
from horovod._keras.callbacks.broadcast import BroadcastGlobalVariablesCallback
from horovod._keras.callbacks.learning_rate import LearningRateScheduleCallback, LearningRateWarmupCallback
from horovod._keras.callbacks.metric_average import MetricAverageCallback
from horovod._keras.callbacks.metrics import MetricsCallback

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "MetricsCallback",
    "with_base",
]
