# SPDX-License-Identifier: Apache-2.0
"""What the engine has found for GPUs, and which way their tensors go."""

from __future__ import annotations

import ctypes
import json
from typing import Any, Dict

from horovod.common import _native

_ENOUGH = 1 << 16


def read() -> Dict[str, Any]:
    """E.g. {"driver": 13000, "nccl": "2.28.9", "sets": [{"process_set": 0, "ranks": 2, "way": ...}]}.

    Empty before the first GPU tensor.
    """
    text = ctypes.create_string_buffer(_ENOUGH)
    length = _native.lib().hvd_device_report(text, len(text))
    if length >= len(text):
        text = ctypes.create_string_buffer(length + 1)
        _native.lib().hvd_device_report(text, len(text))
    found: Dict[str, Any] = json.loads(text.value or b"{}")
    return found
