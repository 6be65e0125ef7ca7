# SPDX-License-Identifier: Apache-2.0
"""What the workers print, as the user sees it: whole lines, each with the rank in front.

    [0]<stdout>:epoch 1
    [1]<stderr>:warning: ...

bytes -> lines (lines.py) -> views (views.py) -> sinks (sinks.py)

Memory stays bounded whatever the workers print: a line is passed on as soon as it is complete, an endless
line in pieces, and a slow terminal slows the workers down instead of filling the launcher's memory.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional

from horovod.runner.host_runner import STDERR, STDOUT
from horovod.runner.lines import LineCutter
from horovod.runner.sinks import Sink, open_file
from horovod.runner.views import LogView, Stream, view_of

_NAMES = {STDOUT: "stdout", STDERR: "stderr"}
_TAIL_LINES, _TAIL_WIDTH = 20, 1000
# A word of the launcher's own waits no longer than this for a blocked terminal: the job needs its launcher.
_WORD_SECONDS = 2.0


class Output:
    """Receives the streams of all workers and writes them line by line; goes on when it cannot write.

    Any number of threads may feed it, but only one each stream.

    Args:
        size: how many workers there are; each gets its files at once.
        directory: where to write DIR/rank.N/stdout and stderr as well (--output-filename).
        timestamps: whether lines start with the time.
        stdout, stderr: default: this process's.
        label: what to put in front of a worker's lines, e.g. its rank at the moment; "": nothing.
    """

    def __init__(
        self,
        size: int,
        directory: Optional[str] = None,
        timestamps: bool = False,
        stdout: Optional[Any] = None,
        stderr: Optional[Any] = None,
        label: Callable[[int], str] = str,
    ) -> None:
        self._label = label
        # Also told of each worker's lines: (label, "stdout" or "stderr", lines).
        self.onlooker: Optional[Callable[[str, str, List[bytes]], None]] = None
        self._directory = directory
        self._timestamps = timestamps
        self._lock = threading.Lock()
        self._cutters: Dict[Stream, LineCutter] = {}
        self._tails: Dict[Stream, Deque[str]] = {}
        self._files: Dict[Stream, LogView] = {}
        digits = len(str(max(size - 1, 0)))
        for worker in range(size):
            self.add_worker(worker, f"rank.{worker:0{digits}d}")
        out = Sink("standard output", stream=stdout or sys.stdout)
        err = Sink("standard error", stream=stderr or sys.stderr)
        self._console = {STDOUT: view_of(out)}
        self._console[STDERR] = self._console[STDOUT] if out.same_place(err) else view_of(err)

    def feed(self, worker: int, channel: int, data: bytes) -> None:
        """Takes what a worker wrote to a stream; b"" ends the stream."""
        stream = (worker, channel)
        with self._lock:
            cutter = self._cutters.setdefault(stream, LineCutter())
            lines, state = cutter.feed(data), cutter.state
            self._remember(stream, lines)
        if not lines and state is None:
            return
        stamp = time.asctime() if self._timestamps else ""
        label = self._label(worker)
        prefix = f"[{label}]<{_NAMES[channel]}>:" if label else ""
        if self.onlooker is not None and lines:
            self.onlooker(label, _NAMES[channel], lines)
        for view in filter(None, (self._console[channel], self._files.get(stream))):
            if lines:
                self._tell(view, view.lines(stream, stamp, prefix, lines))
            if state is not None:
                self._tell(view, view.state(stream, stamp, prefix, state))

    def add_worker(self, worker: int, folder: str) -> None:
        """Opens the files of a worker, if any are wanted."""
        if self._directory is None:
            return
        try:
            path = os.path.join(self._directory, folder)
            os.makedirs(path, exist_ok=True)
            for channel, name in _NAMES.items():
                self._files[(worker, channel)] = LogView(open_file(os.path.join(path, name)))
        except OSError as error:
            for view in self._files.values():
                view.sink.close()
            raise ValueError(
                f"cannot write to --output-filename {self._directory}: {error.filename}: {error.strerror}"
            ) from error

    def tail(self, worker: int) -> List[str]:
        """The last lines of a worker's standard error, or of its standard output if that was silent."""
        with self._lock:
            return list(self._tails.get((worker, STDERR)) or self._tails.get((worker, STDOUT)) or ())

    def say(self, text: str, patience: float = _WORD_SECONDS) -> None:
        """Tells the user something about the job itself, on standard error."""
        view = self._console[STDERR]
        self._tell(view, view.say(text, patience))

    def hurry(self, seconds: float) -> None:
        """The job is ending: waits for slow readers no longer than this, all in all."""
        for view in {*self._console.values(), *self._files.values()}:
            view.sink.hurry(seconds)

    def close(self) -> None:
        """Shows what has no newline yet, and closes the files."""
        for worker, channel in list(self._cutters):
            self.feed(worker, channel, b"")
        for view in self._files.values():
            view.sink.close()
        self._files.clear()

    # ------------------------------------------------------------------------------------- private

    def _tell(self, about: LogView, complaint: Optional[str]) -> None:
        """Tells the user where it can be read that something could not be written elsewhere."""
        if complaint is None:
            return
        for view in (self._console[STDERR], self._console[STDOUT]):
            if view is not about and not view.sink.is_dead:
                view.say(f"horovodrun: {complaint}", _WORD_SECONDS)
                return

    def _remember(self, stream: Stream, lines: List[bytes]) -> None:
        tail = self._tails.setdefault(stream, deque(maxlen=_TAIL_LINES))
        for line in lines[-_TAIL_LINES:]:
            tail.append(line[:_TAIL_WIDTH].decode(errors="replace").rstrip("\r\n"))
