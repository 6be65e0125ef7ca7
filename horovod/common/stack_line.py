# SPDX-License-Identifier: Apache-2.0
"""Tells the stall watch which line of the user's script this rank is in, and the stacks of all threads."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from types import FrameType
from typing import Any, Optional

from horovod.common import _native, observation

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def where() -> str:
    """Where the main thread is: "train.py:41 in step", the innermost frame outside this package."""
    ident = threading.main_thread().ident
    frame: Optional[FrameType] = sys._current_frames().get(ident) if ident is not None else None
    innermost = frame
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    frame = frame or innermost
    if frame is None:
        return "no Python frame"
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def _write(buffer: Any, capacity: int) -> int:
    try:
        whole = f"{where()}\n{observation.stacks()}"
        text = whole.encode("utf-8", "replace")[: max(capacity - 1, 0)] + b"\0"
        ctypes.memmove(buffer, text, len(text))
        return len(text) - 1
    except Exception:  # an engine thread called: nobody above could handle it
        return 0


_callback = _native.WHERE_FN(_write)  # must outlive the engine's use of it


def install() -> None:
    """Lets the engine ask."""
    _native.lib().hvd_set_where(_callback)


def remove() -> None:
    """The interpreter may be going away: the engine must not call into it any more."""
    _native.lib().hvd_set_where(_native.WHERE_FN())
