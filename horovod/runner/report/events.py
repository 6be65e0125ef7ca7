# SPDX-License-Identifier: Apache-2.0
"""The events of a timeline file, one after the other, without holding the file in memory.

A timeline is a JSON array of objects. The file of a job that was killed, or whose disk was full, ends
anywhere: what is complete is read, and what is not is counted.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Iterator, Optional, TextIO

Event = Dict[str, Any]
_CHUNK = 1 << 20
_BETWEEN = " \t\r\n,[]\ufeff"  # what may stand between two objects


class EventReader:
    """Iterates over the objects of an open file.

    Args:
        file: opened as text, e.g. with errors="replace".
        on_progress: called with the number of characters read, now and then.

    Attributes:
        damaged: characters that were skipped because they are no complete object. A file that was cut off
            has the rest of its last line here.
    """

    def __init__(self, file: TextIO, on_progress: Optional[Callable[[int], None]] = None) -> None:
        self.damaged = 0
        self._file = file
        self._on_progress = on_progress

    def __iter__(self) -> Iterator[Event]:
        decode = json.JSONDecoder().raw_decode
        text, at, total, ended = "", 0, 0, False
        while True:
            at = _next_object(text, at)
            try:
                event, at = decode(text, at)
            except json.JSONDecodeError:
                if ended and at >= len(text):
                    return
                if ended or len(text) - at > _CHUNK:  # no event is that long: it is broken
                    skipped_to = _after_line(text, at)
                    self.damaged += skipped_to - at
                    at = skipped_to
                    continue
                more = self._file.read(_CHUNK)
                text, at, ended = text[at:] + more, 0, not more
                total += len(more)
                if self._on_progress is not None:
                    self._on_progress(total)
                continue
            if isinstance(event, dict):
                yield event


def _next_object(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BETWEEN:
        at += 1
    return at


def _after_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1
