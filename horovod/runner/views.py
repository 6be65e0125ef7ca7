# SPDX-License-Identifier: Apache-2.0
"""How lines look in a log and on a terminal: the rank in front, and progress bars that do not get in the way.

In a log (a file, a pipe) a bar is a whole line once it is complete, and every ten seconds until then.
A terminal keeps the newest state of a bar in its last line, below everything else that is printed.
"""

from __future__ import annotations

import os
import re
import time
from typing import Dict, List, Optional, Tuple

from horovod.runner.sinks import FOREVER, Sink

Stream = Tuple[int, int]  # worker, channel
# One colour per rank on a terminal, so that the eye can follow one of them.
_COLOURS = (36, 33, 35, 32, 34, 31)
_BACK_AND_CLEAR = b"\r\x1b[K"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_LOG_SECONDS, _DRAW_SECONDS = 10.0, 0.05


class LogView:
    """Lines for a file or a pipe."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self._colours = sink.is_terminal and "NO_COLOR" not in os.environ
        self._since: Dict[Stream, float] = {}  # bar -> when it was last shown, or begun
        self._shown: Dict[Stream, bytes] = {}

    def lines(self, stream: Stream, stamp: str, prefix: str, lines: List[bytes]) -> Optional[str]:
        """Shows complete lines of a stream. Returns what Sink.write does."""
        mark = self._mark(stream, stamp, prefix)
        self._since.pop(stream, None)
        already = self._shown.pop(stream, None)
        if already is not None and lines[0].rstrip(b"\r\n") == already:
            lines = lines[1:]  # the bar has not moved since it was shown
        return self._write(b"".join([mark + line for line in lines]))

    def state(self, stream: Stream, stamp: str, prefix: str, state: bytes) -> Optional[str]:
        """Takes the newest state of an unfinished line that is drawn over and over."""
        now = time.monotonic()
        if now < self._since.setdefault(stream, now) + _LOG_SECONDS or state == self._shown.get(stream):
            return None
        self._since[stream], self._shown[stream] = now, state
        return self._write(self._mark(stream, stamp, prefix) + state + b"\n")

    def say(self, text: str, patience: float) -> Optional[str]:
        """Shows a word of the launcher's own."""
        return self._write(text.encode(errors="replace") + b"\n", patience)

    def _mark(self, stream: Stream, stamp: str, prefix: str) -> bytes:
        if not self._colours:
            return (stamp + prefix).encode()
        return f"{stamp}\x1b[{_COLOURS[stream[0] % len(_COLOURS)]}m{prefix}\x1b[0m".encode()

    def _write(self, data: bytes, patience: float = FOREVER) -> Optional[str]:
        return self.sink.write(data, patience) if data else None


class TerminalView(LogView):
    """Lines for a terminal: the newest state of a bar stays below them."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self._bars: Dict[Stream, bytes] = {}  # marked states, the last drawn last
        self._drawn_at = 0.0
        self._is_drawn = False

    def lines(self, stream: Stream, stamp: str, prefix: str, lines: List[bytes]) -> Optional[str]:
        """Shows complete lines above the bars."""
        self._bars.pop(stream, None)  # its line is among them
        return super().lines(stream, stamp, prefix, lines)

    def state(self, stream: Stream, stamp: str, prefix: str, state: bytes) -> Optional[str]:
        """Draws the newest state of a bar, not more often than the eye can follow."""
        self._bars.pop(stream, None)
        self._bars[stream] = self._mark(stream, stamp, prefix) + state
        now = time.monotonic()
        if now < self._drawn_at + _DRAW_SECONDS:
            return None
        self._drawn_at = now
        return self._write(b"")

    def _write(self, data: bytes, patience: float = FOREVER) -> Optional[str]:
        return self.sink.write(data, patience, self._with_bar)

    def _with_bar(self, data: bytes) -> bytes:
        clear = _BACK_AND_CLEAR if self._is_drawn else b""
        bar = self._last_bar() if data.endswith(b"\n") or not data else b""
        self._is_drawn = bool(bar)
        return clear + data + bar

    def _last_bar(self) -> bytes:
        """The bar that moved last, cut to the width of the terminal; ends such that no newline is missed."""
        if not self._bars:
            return b""
        text = list(self._bars.values())[-1].decode(errors="ignore")
        room, fitted, place = self.sink.columns() - 1, "", 0
        for escape in [*_ESCAPES.finditer(text), None]:
            plain = text[place : escape.start() if escape else len(text)]
            fitted += plain[:room]
            room = max(room - len(plain), 0)
            if escape:
                fitted += escape.group()
                place = escape.end()
        return fitted.encode() + (b"\x1b[0m" if "\x1b" in fitted else b"") + b"\r"


def view_of(sink: Sink) -> LogView:
    """The view that suits a sink."""
    cursor = os.environ.get("TERM", "dumb") not in ("", "dumb")
    return TerminalView(sink) if sink.is_terminal and cursor else LogView(sink)
