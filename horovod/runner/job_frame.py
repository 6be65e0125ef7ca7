# SPDX-License-Identifier: Apache-2.0
"""What every job has around it, static or elastic: output, signals, one queue of events, an end in time.

subclass: _start -> host runners -> events -> _supervise -> everything ended
"""

from __future__ import annotations

import queue
import signal
import time
from typing import TYPE_CHECKING, Any, Dict, Optional

from horovod.runner.host_runner import HostRunner, on_all
from horovod.runner.output import Output
from horovod.runner.settings import JobSettings
from horovod.runner.signals import Signals
from horovod.runner.supervision import Interrupted, JobInterrupted

if TYPE_CHECKING:
    from horovod.rendezvous.store_server import StoreServer

# How often hosts are asked for how long they have been silent.
_SILENCE_CHECK_SECONDS = 1.0
# How long a reader who is slow to take the last lines is waited for: after a failure, which should be read,
# and after a signal, whose sender wants an end.
_READER_SECONDS, _INTERRUPTED_SECONDS = 60.0, 1.0


class JobFrame:
    """A running (or to be run) job. Subclasses start its workers and watch them.

    Attributes:
        store: the job's store, once it serves.
    """

    # Who tells the user about the job.
    NAME = "horovodrun"

    def __init__(self, settings: JobSettings) -> None:
        self.settings = settings
        self.store: Optional[StoreServer] = None
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._runners: Dict[str, HostRunner] = {}

    def run(self) -> None:
        """Runs the job to its end. Raises JobFailed, HostError or JobInterrupted; leaves nothing behind."""
        self._output = self._make_output()
        patience = _READER_SECONDS
        try:
            with Signals(lambda number: self._events.put(Interrupted(number)), self._pause, self._show):
                try:
                    self._start()
                    self._supervise()
                except BaseException as error:
                    if isinstance(error, JobInterrupted):
                        patience = _INTERRUPTED_SECONDS
                    self._end_all(error)
                    raise
        finally:
            self._let_go(patience)

    def say(self, text: str, level: int = 0) -> None:
        """Tells the user something about the job itself, on standard error."""
        if self.settings.verbose >= level:
            self._output.say(f"{self.NAME}: {text}")

    # ------------------------------------------------------------------------- what subclasses say

    def _make_output(self) -> Output:
        """Where what the workers print goes."""
        raise NotImplementedError

    def _start(self) -> None:
        """Starts the workers, or what will start them."""
        raise NotImplementedError

    def _supervise(self) -> None:
        """Watches until the job is over. Raises what it failed of."""
        raise NotImplementedError

    def _has_far_hosts(self) -> bool:
        """Whether there are hosts that may fall silent."""
        raise NotImplementedError

    # --------------------------------------------------------------------------------------- watch

    def _next_event(self, wake_at: Optional[float]) -> Any:
        """The next event; None when it is time to look at the clock."""
        waits = [_SILENCE_CHECK_SECONDS] if self._has_far_hosts() else []
        waits += [] if wake_at is None else [max(wake_at - time.monotonic(), 0.0)]
        try:
            return self._events.get(timeout=min(waits) if waits else None)
        except queue.Empty:
            return None

    def _silences(self) -> Dict[str, float]:
        """For how long each host has been silent."""
        return {host: runner.silence() for host, runner in self._runners.items()}

    # ----------------------------------------------------------------------------------------- end

    def _end_all(self, error: BaseException) -> None:
        """Ends the workers of a job that failed."""
        on_all(self._runners.values(), lambda runner: runner.terminate())

    def _let_go(self, patience: float) -> None:
        """Delivers what is left of the output and closes everything, within the given time."""
        self._output.hurry(patience)
        on_all(self._runners.values(), lambda runner: runner.close(patience))
        self._close_rest(patience)
        if self.store is not None:
            self.store.close()
        self._output.close()

    def _close_rest(self, patience: float) -> None:
        """Closes what else there is before the store and the output are closed."""

    def _show(self) -> None:
        """Has every rank say what it does, and where it is."""
        for runner in self._runners.values():
            runner.signal(signal.SIGQUIT)

    def _pause(self) -> None:
        for runner in self._runners.values():
            runner.pause()
