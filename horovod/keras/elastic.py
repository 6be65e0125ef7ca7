# SPDX-License-Identifier: Apache-2.0
"""Elastic training of Keras models."""

from __future__ import annotations

from typing import Any, Callable

import keras

from horovod._keras import elastic as _impl
from horovod._keras.callbacks import with_base
from horovod._keras.elastic import KerasState
from horovod.common.basics import basics as _basics
from horovod.common.elastic import checkpoint, run_fn

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "checkpoint",
    "run",
]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function, called with a state object first, so that it survives lost workers."""
    if keras.config.backend() == "tensorflow":
        from horovod.tensorflow.elastic import run as run_tensorflow

        return run_tensorflow(func)
    return run_fn(func, _basics.reset)


_base = keras.callbacks.Callback
CommitStateCallback = with_base(_impl.CommitStateCallback, _base, __name__)
UpdateBatchStateCallback = with_base(_impl.UpdateBatchStateCallback, _base, __name__)
UpdateEpochStateCallback = with_base(_impl.UpdateEpochStateCallback, _base, __name__)
