# SPDX-License-Identifier: Apache-2.0
"""Cuts what a worker prints into lines. A line that is drawn over and over counts once.

Progress bars go back to the start of their line with a carriage return and print the line anew:

    b"\r 10%|#   |\r 50%|###  |\r100%|#####|\n"

Of such a line only the newest state is of interest: `state` while the line is unfinished, and what is left of
it once the newline comes, here b"100%|#####|\n". All other lines stay byte for byte what they were.
"""

from __future__ import annotations

from typing import List, Optional

# A line longer than this is passed on in pieces, so that an endless one does not fill the memory.
MAX_LINE = 1 << 18


class LineCutter:
    """The lines of one stream."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> List[bytes]:
        """Takes the next bytes of the stream; returns the lines that are complete now, with their ends.

        b"" ends the stream: what is left is returned without a newline.
        """
        *finished, rest = (self._rest + data).split(b"\n")
        lines = [_settled(line) + b"\n" for line in finished]
        if rest and (not data or len(rest) >= MAX_LINE):
            lines.append(_settled(rest))
            rest = b""
        if rest.count(b"\r") > 1:
            before, _, after = rest.rpartition(b"\r")
            rest = b"\r" + _newest(before) + b"\r" + after
        self._rest = rest
        return lines

    @property
    def state(self) -> Optional[bytes]:
        """The newest state of an unfinished line that is being drawn over and over; None for other lines."""
        return _newest(self._rest) if b"\r" in self._rest else None


def _settled(line: bytes) -> bytes:
    """What is left of a line when it is complete."""
    body = line[:-1] if line.endswith(b"\r") else line  # "text\r\n" is an ordinary line
    return _newest(body) if b"\r" in body else line


def _newest(line: bytes) -> bytes:
    """What was printed last, not counting the blanks with which a bar is wiped out."""
    for state in reversed(line.split(b"\r")):
        if state.strip():
            return state
    return b""
