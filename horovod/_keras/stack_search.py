# SPDX-License-Identifier: Apache-2.0
"""Who is calling: Keras hands an optimizer neither its model nor the optimizer it was wrapped into."""

from __future__ import annotations

import sys
from typing import Any, Callable, Optional

_DEPTH = 40


def find(matches: Callable[[Any], bool]) -> Optional[Any]:
    """The nearest object whose method is on the call stack and which matches."""
    frame: Any = sys._getframe(2)
    for _ in range(_DEPTH):
        if frame is None:
            return None
        candidate = frame.f_locals.get("self")
        if candidate is not None and matches(candidate):
            return candidate
        frame = frame.f_back
    return None
