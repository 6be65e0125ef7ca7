# SPDX-License-Identifier: Apache-2.0
"""SIGQUIT has a rank print the Python stacks of all its threads, and go on; horovodrun passes it on."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys

from horovod.rendezvous.readers import own


def install() -> None:
    """Lets the launcher ask, unless the script has a handler of its own; any number of times.

    Only where a launcher of ours runs: without one, the signal ends a process as usual. The handler is C
    code, so that it also works in a process whose main thread does not come back to Python.
    """
    errors = sys.__stderr__
    if own.ADDRESS not in os.environ or errors is None or signal.getsignal(signal.SIGQUIT) != signal.SIG_DFL:
        return
    try:
        faulthandler.register(signal.SIGQUIT, file=errors, all_threads=True)
    except (ValueError, OSError):
        pass  # standard error was closed
