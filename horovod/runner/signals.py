# SPDX-License-Identifier: Apache-2.0
"""Signals to the launcher, while a job runs."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any, Callable, Dict


class Signals:
    """Turns SIGINT, SIGTERM and SIGHUP into calls of `stop`, and SIGQUIT of `show`; calls `pause` before
    Ctrl-Z stops the process.

    What the parent had ignored stays ignored (`nohup horovodrun ... &`, and SIGINT in a shell's background
    jobs), SIGTERM and SIGQUIT aside: these always reach the job. Outside of the main thread, as in notebooks,
    Python allows no handlers and nothing is caught.
    """

    def __init__(
        self, stop: Callable[[int], None], pause: Callable[[], None], show: Callable[[], None]
    ) -> None:
        self._stop, self._pause, self._show = stop, pause, show
        self._before: Dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            self._catch(signal.SIGTERM, self._asked_to_end)
            self._catch(signal.SIGQUIT, self._asked_to_show)
            meanings = {
                signal.SIGINT: self._asked_to_end,
                signal.SIGHUP: self._asked_to_end,
                signal.SIGTSTP: self._stopped,
            }
            for number, handler in meanings.items():
                if signal.getsignal(number) != signal.SIG_IGN:
                    self._catch(number, handler)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _catch(self, number: int, handler: Callable[[int, Any], None]) -> None:
        self._before[number] = signal.signal(number, handler) or signal.SIG_DFL

    def _asked_to_end(self, number: int, frame: object) -> None:
        self._stop(number)

    def _asked_to_show(self, number: int, frame: object) -> None:
        self._show()

    def _stopped(self, number: int, frame: object) -> None:
        self._pause()
        os.kill(os.getpid(), signal.SIGSTOP)
