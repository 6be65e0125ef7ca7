# SPDX-License-Identifier: Apache-2.0
"""Which lines of Python the main thread is at: a timer interrupts it and its stack is noted.

Time inside a C function counts for the line that called it. The interpreter looks at signals between
instructions, so a line's share is right to about one instruction.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Dict, List, NamedTuple, Optional, Tuple

from benchmarks.environments import ROOT

INTERVAL_S = 0.00073  # no multiple of anything in the engine


class Place(NamedTuple):
    """A line of source."""

    file: str
    line: int
    function: str


class LineSampler:
    """Samples while the with block lasts."""

    def __init__(self) -> None:
        self._self: Dict[Place, int] = {}
        self._below: Dict[Place, int] = {}
        self.samples = 0

    def __enter__(self) -> LineSampler:
        self._before = signal.signal(signal.SIGALRM, self._note)
        signal.setitimer(signal.ITIMER_REAL, INTERVAL_S, INTERVAL_S)
        return self

    def __exit__(self, *error: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _note(self, number: int, frame: Optional[FrameType]) -> None:
        self.samples += 1
        innermost, seen = True, set()
        while frame is not None:
            place = Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
            if innermost:
                self._self[place] = self._self.get(place, 0) + 1
                innermost = False
            if place not in seen:
                self._below[place] = self._below.get(place, 0) + 1
                seen.add(place)
            frame = frame.f_back

    def shares(self) -> List[Tuple[str, float, float]]:
        """(file:line function, share itself, share with what it calls), the dearest first."""
        total = max(1, self.samples)
        found = [
            (_text(place), self._self.get(place, 0) / total, count / total)
            for place, count in self._below.items()
        ]
        return sorted(found, key=lambda entry: (-entry[1], -entry[2]))


def _text(place: Place) -> str:
    file = place.file
    if file.startswith(str(ROOT)):
        file = os.path.relpath(file, ROOT)
    else:
        file = "/".join(file.rsplit("/", 2)[-2:])
    return f"{file}:{place.line} {place.function}"
