# SPDX-License-Identifier: Apache-2.0
"""Steps marked, and what Horovod took of each epoch among its metrics."""

from __future__ import annotations

from typing import Dict

from horovod._keras.callbacks.base import AnyKeras, Logs
from horovod.common import observation

_SECONDS = 1e-6  # of a microsecond


class MetricsCallback(AnyKeras):
    """Marks every batch as a step, and adds to each epoch's metrics what Horovod did in it.

    `hvd_wait_s`: seconds in which this rank waited for others; `hvd_execute_s`: seconds in which bytes moved,
    some of them while it computed; `hvd_mib`: payload of this rank. Put it before callbacks that write
    metrics, such as TensorBoard.
    """

    def __init__(self) -> None:
        super().__init__()
        self._before: Dict[str, float] = {}

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Remembers where the counters are."""
        self._before = _counters()

    def on_batch_end(self, batch: int, logs: Logs = None) -> None:
        """A step is done."""
        observation.step_done()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Adds what the counters grew by."""
        if logs is not None:
            logs.update({name: value - self._before.get(name, 0) for name, value in _counters().items()})


def _counters() -> Dict[str, float]:
    now = observation.metrics()
    return {
        "hvd_wait_s": now["wait_us"] * _SECONDS,
        "hvd_execute_s": now["execute_us"] * _SECONDS,
        "hvd_mib": now["bytes"] / (1 << 20),
    }
