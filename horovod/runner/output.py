# SPDX-License-Identifier: Apache-2.0
"""What the workers print, as the user sees it: whole lines, each with the rank in front.

    [0]<stdout>:epoch 1
    [1]<stderr>:warning: ...

Memory stays bounded whatever the workers print: a line is passed on as soon as it is complete, an endless
line in pieces, and a slow terminal slows the workers down instead of filling the launcher's memory.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from typing import Any, BinaryIO, Deque, Dict, List, Optional, Tuple

from horovod.runner.workers import STDERR, STDOUT

_NAMES = {STDOUT: "stdout", STDERR: "stderr"}
# A line longer than this is passed on in pieces.
_MAX_LINE = 1 << 18
_TAIL_LINES, _TAIL_WIDTH = 20, 1000
# One colour per rank on a terminal, so that the eye can follow one of them.
_COLOURS = (36, 33, 35, 32, 34, 31)


class Output:
    """Receives the streams of all ranks (from any thread) and writes them line by line."""

    def __init__(
        self,
        size: int,
        directory: Optional[str] = None,
        timestamps: bool = False,
        stdout: Optional[Any] = None,
        stderr: Optional[Any] = None,
    ) -> None:
        self._sinks = {STDOUT: _Sink(stdout or sys.stdout), STDERR: _Sink(stderr or sys.stderr)}
        self._timestamps = timestamps
        self._directory = directory
        self._digits = len(str(max(size - 1, 0)))
        self._files: Dict[Tuple[int, int], BinaryIO] = {}
        self._rest: Dict[Tuple[int, int], bytes] = {}
        self._tails: Dict[int, Deque[str]] = {}
        self._lock = threading.Lock()
        if directory is not None:
            self._create_directories(size)

    def feed(self, rank: int, channel: int, data: bytes) -> None:
        """Takes what a rank wrote to a stream; b"" ends the stream."""
        with self._lock:
            self._feed(rank, channel, data)

    def tail(self, rank: int) -> List[str]:
        """The last lines of a rank's standard error, or of its standard output if that was silent."""
        with self._lock:
            return list(self._tails.get(rank * 4 + STDERR) or self._tails.get(rank * 4 + STDOUT) or ())

    def close(self) -> None:
        """Flushes and closes the files."""
        with self._lock:
            for rank, channel in list(self._rest):
                self._feed(rank, channel, b"")
            for file in self._files.values():
                file.close()
            self._files.clear()
            for sink in self._sinks.values():
                sink.flush()

    # ------------------------------------------------------------------------------------- private

    def _feed(self, rank: int, channel: int, data: bytes) -> None:
        lines = (self._rest.pop((rank, channel), b"") + data).splitlines(keepends=True)
        if not lines:
            return
        if data and len(lines[-1]) < _MAX_LINE and _unfinished(lines[-1]):
            self._rest[(rank, channel)] = lines.pop()
        if not lines:
            return
        self._remember(rank, channel, lines)
        plain = f"[{rank}]<{_NAMES[channel]}>:"
        stamp = time.asctime() if self._timestamps else ""
        sink = self._sinks[channel]
        colour = f"\x1b[{_COLOURS[rank % len(_COLOURS)]}m" if sink.is_terminal else ""
        prefix = f"{stamp}{colour}{plain}\x1b[0m" if colour else stamp + plain
        sink.write([prefix.encode() + line for line in lines])
        file = self._files.get((rank, channel))
        if file is not None:
            mark = (stamp + plain).encode()
            file.write(b"".join([mark + line for line in lines]))
            file.flush()

    def _remember(self, rank: int, channel: int, lines: List[bytes]) -> None:
        tail = self._tails.setdefault(rank * 4 + channel, deque(maxlen=_TAIL_LINES))
        for line in lines[-_TAIL_LINES:]:
            tail.append(line[:_TAIL_WIDTH].decode(errors="replace").rstrip("\r\n"))

    def _create_directories(self, size: int) -> None:
        assert self._directory is not None
        for rank in range(size):
            folder = os.path.join(self._directory, f"rank.{rank:0{self._digits}d}")
            os.makedirs(folder, exist_ok=True)
            for channel, name in _NAMES.items():
                self._files[(rank, channel)] = open(os.path.join(folder, name), "wb")


class _Sink:
    """Standard output or error: bytes where it has a binary side, text in notebooks and tests."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._binary = getattr(stream, "buffer", None)
        self._mid_line = False
        isatty = getattr(stream, "isatty", None)
        self.is_terminal = bool(isatty and isatty()) and "NO_COLOR" not in os.environ

    def write(self, lines: List[bytes]) -> None:
        # A rank's last line may have no newline; the next line of another rank must not continue it.
        block = (b"\n" if self._mid_line else b"") + b"".join(lines)
        self._mid_line = _unfinished(block)
        try:
            if self._binary is not None:
                self._stream.flush()
                self._binary.write(block)
                self._binary.flush()
            else:
                self._stream.write(block.decode(errors="replace"))
        except BrokenPipeError:  # `horovodrun ... | head`: the job goes on, nobody listens
            self._binary = open(os.devnull, "wb")

    def flush(self) -> None:
        try:
            self._stream.flush()
        except (OSError, ValueError, AttributeError):
            pass


def _unfinished(data: bytes) -> bool:
    return not data.endswith((b"\n", b"\r"))
