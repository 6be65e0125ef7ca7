# SPDX-License-Identifier: Apache-2.0
"""Where output ends up: a terminal, a pipe, a file, a notebook's cell; and what happens when it cannot.

Training must never stop because its output cannot be written. `Sink.write` does not raise, whatever happens
to a terminal, a disk or the other end of a pipe; it returns a sentence for the user the first time that it
had to drop something. A full disk is tried again every second; everything else that fails is given up.

A reader that merely is slow is waited for, which slows the workers down instead of filling the memory; but
not for longer than `hurry` allows once the job is ending.
"""

from __future__ import annotations

import errno
import io
import os
import select
import stat
import threading
import time
from typing import Any, Callable, Optional

_FULL = (errno.ENOSPC, errno.EDQUOT)
_RETRY_SECONDS = 1.0
# Ready for writing means room for so many bytes (POSIX's PIPE_BUF): writing no more than this never waits.
_PIECE = 4096
_LOOK_SECONDS = 0.2
FOREVER = float("inf")


class Sink:
    """Takes bytes for one place. May be used by several threads; each write stays in one piece.

    name: for messages, e.g. "standard output" or "logs/rank.0/stdout".
    descriptor: where to write; or
    stream: a Python stream. One over a plain file or terminal is written to through its descriptor.
    """

    def __init__(self, name: str, descriptor: Optional[int] = None, stream: Optional[Any] = None) -> None:
        self.name = name
        self._stream = stream
        self._descriptor = _descriptor_of(stream) if descriptor is None else descriptor
        self._lock = threading.Lock()
        self._mid_line = False
        self._dead = self._descriptor is None and stream is None
        self._told = self._told_again = False
        self._missing = 0  # lines dropped since the disk is full
        self._retry_at = 0.0
        self._give_up_at = FOREVER
        self._poll: Optional[select.poll] = None
        if self._descriptor is not None and not _is_file(self._descriptor):
            self._poll = select.poll()
            self._poll.register(self._descriptor, select.POLLOUT)

    @property
    def is_terminal(self) -> bool:
        """Whether a person is looking at it."""
        try:
            if self._descriptor is not None:
                return os.isatty(self._descriptor)
            return bool(self._stream is not None and self._stream.isatty())
        except (AttributeError, OSError, ValueError):
            return False

    @property
    def is_dead(self) -> bool:
        """Whether nothing can be written any more."""
        return self._dead

    def columns(self) -> int:
        """The width of the terminal."""
        try:
            return os.get_terminal_size(-1 if self._descriptor is None else self._descriptor).columns or 80
        except OSError:
            return 80

    def same_place(self, other: Sink) -> bool:
        """Whether both end up in the same terminal, pipe or file (`2>&1`)."""
        if self._descriptor is None or other._descriptor is None:
            return self._stream is not None and self._stream is other._stream
        try:
            return os.path.sameopenfile(self._descriptor, other._descriptor)
        except OSError:
            return False

    def hurry(self, seconds: float) -> None:
        """From now on, slow readers are waited for no longer than this, all in all."""
        self._give_up_at = time.monotonic() + seconds

    def write(
        self, data: bytes, patience: float = FOREVER, frame: Optional[Callable[[bytes], bytes]] = None
    ) -> Optional[str]:
        """Writes whole lines, waiting for a slow reader up to `patience` seconds.

        Args:
            frame: adds what must stand around the lines at the moment of writing.

        Returns:
            What the user should be told, once: that output is being dropped, or comes again.
        """
        if not self._lock.acquire(timeout=-1 if patience == FOREVER else patience):
            return None  # another thread waits for the same slow reader
        try:
            if self._dead:
                return None
            return self._write(frame(data) if frame else data, time.monotonic() + patience)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Closes a descriptor of our own."""
        with self._lock:
            if self._stream is None and self._descriptor is not None and not self._dead:
                os.close(self._descriptor)
            self._dead = True

    # ------------------------------------------------------------------------------------- private

    def _write(self, data: bytes, limit: float) -> Optional[str]:
        note = b""
        if self._missing:
            if time.monotonic() < self._retry_at:
                self._missing += data.count(b"\n")
                return None
            note = b"horovodrun: %d lines are missing here: there was no room\n" % self._missing
        # A rank's last line may have no newline; the next line of another rank must not continue it.
        try:
            self._put((b"\n" if self._mid_line else b"") + note + data, limit)
        except Exception as error:
            return self._failed(error, data)
        if not self._missing:
            return None
        missing, self._missing = self._missing, 0
        told, self._told_again = self._told_again, True
        return None if told else f"there is room for {self.name} again; {missing} lines are missing there"

    def _failed(self, error: Exception, data: bytes) -> Optional[str]:
        why = getattr(error, "strerror", None) or str(error)
        if getattr(error, "errno", None) in _FULL:
            self._missing += data.count(b"\n") or 1
            self._retry_at = time.monotonic() + _RETRY_SECONDS
        else:
            self._dead = True
        told, self._told = self._told, True
        return None if told else f"cannot write to {self.name}: {why}. It is dropped there; the job goes on"

    def _put(self, block: bytes, limit: float) -> None:
        if self._descriptor is None:
            self._put_into_stream(block)
            return
        if self._stream is not None:
            try:
                self._stream.flush()  # what the program itself printed comes first
            except (OSError, ValueError):
                pass  # its own business
        left = memoryview(block)
        while left:
            if self._poll is not None and not self._is_ready(limit):
                return
            try:
                written = os.write(self._descriptor, left if self._poll is None else left[:_PIECE])
            except BlockingIOError:
                continue
            self._mid_line = left[written - 1] not in b"\r\n"
            left = left[written:]

    def _is_ready(self, limit: float) -> bool:
        """Waits until the reader takes more; False if it took too long."""
        assert self._poll is not None
        while True:
            left = min(limit, self._give_up_at) - time.monotonic()
            if self._poll.poll(min(max(left, 0.0), _LOOK_SECONDS) * 1000):
                return True
            if left <= 0:
                return False

    def _put_into_stream(self, block: bytes) -> None:
        assert self._stream is not None
        binary = getattr(self._stream, "buffer", None)
        if binary is not None:
            self._stream.flush()
            binary.write(block)
            binary.flush()
        else:
            self._stream.write(block.decode(errors="replace"))
        self._mid_line = not block.endswith((b"\n", b"\r"))


def open_file(path: str) -> Sink:
    """A sink that writes a new file."""
    return Sink(path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666))


def _descriptor_of(stream: Any) -> Optional[int]:
    """The descriptor under sys.stdout and the like; None for notebooks, StringIO and captured output."""
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # PYTHONUNBUFFERED leaves the buffer out
    try:
        return raw.fileno() if isinstance(raw, io.FileIO) else None
    except (OSError, ValueError):
        return None


def _is_file(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:
        return False
