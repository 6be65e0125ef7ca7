# SPDX-License-Identifier: Apache-2.0
"""Ends the workers of a launcher that was killed before it could do so itself.

Run as a script, with a pipe from the launcher as standard input. Each line is the id of a process group to
guard; "bye" ends the watch. End of file without it means that the launcher is gone (even by kill -9, which
no handler inside it could see), and the groups are ended. Imports next to nothing: it starts in milliseconds.
"""

import os
import signal
import sys
import time

GRACE_SECONDS = 3.0


def _signal_all(groups: "list[int]", number: int) -> "list[int]":
    """Signals the groups that still exist and returns them."""
    alive = []
    for group in groups:
        try:
            os.killpg(group, number)
            alive.append(group)
        except (ProcessLookupError, PermissionError):
            pass
    return alive


def main() -> None:
    """Guards until told goodbye or orphaned."""
    # Ctrl-C in the launcher's terminal must not end the one process that cleans up after it.
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    groups = []
    for line in sys.stdin:
        if line == "bye\n":
            return
        groups.append(int(line))
    groups = _signal_all(groups, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    while groups and time.monotonic() < deadline:
        time.sleep(0.05)
        groups = _signal_all(groups, 0)
    _signal_all(groups, signal.SIGKILL)


if __name__ == "__main__":
    main()
