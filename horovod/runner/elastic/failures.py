# SPDX-License-Identifier: Apache-2.0
"""Whose fault the end of a worker was: the machine's, the script's, or somebody else's. Pure.

A process that was killed, or whose host is gone, is a loss: the job goes on. One whose script raised may be
either; so it is tried once more. What fails at the same place again is

- the host's fault, if it happens there only and there are others: that host is left alone,
- the script's fault otherwise: the job ends with that error instead of trying for ever.
"""

from __future__ import annotations

import re
import signal
from typing import Dict, List, Optional, Sequence, Tuple

from horovod.runner.supervision import WorkerFailure

# Ends that come from within the process. Others (SIGKILL, SIGTERM) say nothing about the script.
_CRASHES = {
    128 + number for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
}
_LINE = re.compile(r'^\s*File "(.+)", line (\d+)')
_FRAMEWORK = re.compile(r"/site-packages/|/horovod/")
_NAME = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning))\b")
TRIES = 2
_MEMORY_SECONDS = 3600.0


def place_of(failure: WorkerFailure) -> Optional[str]:
    """Where a script failed, e.g. "ValueError at train.py:41"; None for an end that came from outside."""
    if failure.is_echo():
        return None
    if failure.code > 128:
        return f"exit code {failure.code}" if failure.code in _CRASHES else None
    line = error = ""
    for text in failure.tail:
        found = _LINE.match(text)
        if found and not (line and _FRAMEWORK.search(found[1])):
            line = f"{found[1]}:{found[2]}"
        named = _NAME.match(text)
        error = named[1] if named else error
    if line or error:
        return f"{error or 'an error'} at {line or 'an unknown line'}"
    return f"exit code {failure.code}: {failure.tail[-1] if failure.tail else ''}"


class Places:
    """Counts failures by place and host, within the last hour."""

    def __init__(self) -> None:
        self._seen: Dict[str, List[Tuple[float, str]]] = {}

    def note(self, place: str, host: str, now: float) -> None:
        """One more failure at that place."""
        recent = [one for one in self._seen.get(place, ()) if one[0] > now - _MEMORY_SECONDS]
        self._seen[place] = [*recent, (now, host)]

    def verdict(self, place: str, other_hosts: Sequence[str]) -> str:
        """ "script", "host", or "" while it may be chance.

        Args:
            other_hosts: hosts that the job could go on with.
        """
        seen = [host for _, host in self._seen.get(place, ())]
        if len(set(seen)) > 1:
            return "script"
        if len(seen) < TRIES:
            return ""
        return "host" if other_hosts else "script"
