# SPDX-License-Identifier: Apache-2.0
"""What the user's code logs on the ranks reaches callbacks in the driver: ray_logger.log({"loss": 0.1})."""

from __future__ import annotations

import warnings
from typing import Any, Dict, Optional

_queue: Optional[Any] = None
_warned = False


def configure(queue: Any) -> None:
    """Where `log` leaves things: a ray.util.queue.Queue; None: nowhere."""
    global _queue, _warned
    _queue, _warned = queue, False


def log(info_dict: Dict[str, Any]) -> None:
    """Hands a dictionary to the callbacks of the executor's `run`, in the driver."""
    global _warned
    if _queue is not None:
        _queue.put(info_dict)
    elif not _warned:
        _warned = True
        warnings.warn("`ray_logger.log` called but logging is not configured.", RuntimeWarning, stacklevel=2)
