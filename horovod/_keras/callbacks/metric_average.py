# SPDX-License-Identifier: Apache-2.0
"""Metrics averaged over the ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from horovod._keras.callbacks.base import AnyKeras, Logs
from horovod.common import objects
from horovod.common.basics import basics as _basics


class MetricAverageCallback(AnyKeras):
    """Averages the metrics over all ranks at the end of each epoch.

    Args:
        device: accepted for compatibility.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Replaces every metric by its mean over the ranks."""
        if not logs or _basics.size() == 1:
            return
        mine = {name: float(value) for name, value in logs.items() if _is_number(value)}
        everybody = objects.allgather_object(mine, name="keras_metrics")
        for name in sorted(mine):
            values = [one[name] for one in everybody if name in one]
            logs[name] = float(np.mean(values))


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
