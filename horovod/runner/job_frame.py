# SPDX-License-Identifier: Apache-2.0
"""What every job has around it, static or elastic: output, signals, one queue of events, an end in time.

subclass: _start -> host runners -> events -> _supervise -> everything ended
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Dict, Optional

from horovod.runner.host_runner import HostRunner, WorkerExited, on_all
from horovod.runner.output import Output
from horovod.runner.settings import JobSettings
from horovod.runner.signals import Signals
from horovod.runner.supervision import Interrupted, JobInterrupted
from horovod.runner.watch.onlooker import Onlooker

if TYPE_CHECKING:
    from horovod.rendezvous.store_server import Event as StoreEvent
    from horovod.rendezvous.store_server import StoreServer

# How long a reader who is slow to take the last lines is waited for: after a failure, which should be read,
# and after a signal, whose sender wants an end.
_READER_SECONDS, _INTERRUPTED_SECONDS = 60.0, 1.0
# How often the main thread looks up. Far hosts are asked for how long they have been silent; and handlers of
# signals run in that thread once it is awake. A signal wakes it, but for one that came while the process was
# stopped (Ctrl-Z, then `kill %1`): that may go to any thread.
_LOOK_SECONDS = 1.0


class JobFrame:
    """A running (or to be run) job. Subclasses start its workers and watch them.

    Attributes:
        store: the job's store, once it serves.
        fewest: ranks that must have finished for their results to be those of the job.
        onlooker: told what happens, for those who look at the job while it runs.
    """

    # Who tells the user about the job.
    NAME = "horovodrun"

    def __init__(self, settings: JobSettings) -> None:
        self.settings = settings
        self.fewest = 0
        self.store: Optional[StoreServer] = None
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._runners: Dict[str, HostRunner] = {}
        self.onlooker = Onlooker() if settings.watch is None else self._watcher()

    def run(self) -> None:
        """Runs the job to its end. Raises JobFailed, HostError or JobInterrupted; leaves nothing behind."""
        self._output = self._make_output()
        patience = _READER_SECONDS
        try:
            with Signals(lambda number: self._events.put(Interrupted(number)), self._pause, self._inspect):
                try:
                    self._let_look()
                    self._start()
                    self._supervise()
                except BaseException as error:
                    if isinstance(error, JobInterrupted):
                        patience = _INTERRUPTED_SECONDS
                    self._end_all(error)
                    self.onlooker.close(str(error) or type(error).__name__)
                    raise
                self.onlooker.close(None)
        finally:
            self._let_go(patience)

    def say(self, text: str, level: int = 0) -> None:
        """Tells the user something about the job itself, on standard error."""
        self._show(text, level)
        if self.settings.verbose >= level:
            self.onlooker.happened("note", text)

    def _show(self, text: str, level: int = 0) -> None:
        """The same without telling the onlooker."""
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

    # --------------------------------------------------------------------------------------- watch

    def _next_event(self, wake_at: Optional[float]) -> Any:
        """The next event; None when it is time to look at the clock."""
        event = self._heard(_LOOK_SECONDS if wake_at is None else wake_at - time.monotonic())
        if isinstance(event, WorkerExited):
            self.onlooker.exited(self._name_of(event.worker), event.code)
        return event

    def _heard(self, seconds: float = _LOOK_SECONDS) -> Any:
        """The next event; None if there was none for so long, or when it is time to look up."""
        try:
            return self._events.get(timeout=min(max(seconds, 0.0), _LOOK_SECONDS))
        except queue.Empty:
            return None

    def _name_of(self, worker: int) -> str:
        """By which the store knows a worker."""
        return str(worker)

    def _silences(self) -> Dict[str, float]:
        """For how long each host has been silent."""
        return {host: runner.silence() for host, runner in self._runners.items()}

    # --------------------------------------------------------------------------------------- look

    def _watcher(self) -> Onlooker:
        """Who looks at the job; its ranks then report (horovod.common.reporter)."""
        from horovod.runner.watch.watcher import Watcher

        settings = self.settings
        assert settings.watch is not None
        settings.env = dict(settings.env, HOROVOD_OBSERVE="1")
        if settings.watch.top:
            from horovod.runner.watch.top import give_way

            settings.stdout, settings.stderr = give_way(settings.stdout, settings.stderr)
        words = [os.path.basename(word) if word.startswith("/") else word for word in settings.command]
        return Watcher(settings.watch, " ".join(words), self._show)

    def _let_look(self) -> None:
        if self.settings.watch is not None:
            self._output.onlooker = self.onlooker.printed
        self.onlooker.open()

    def _on_store_event(self, event: StoreEvent) -> None:
        """Something happened in the store; runs on its thread."""
        self.onlooker.hears(event)

    def _inspect(self) -> None:
        """SIGQUIT: shows what the ranks do, with their stacks. Runs in a signal handler."""

        def show() -> None:
            report = self.onlooker.stacks()
            if report is not None:
                self._output.say(report)
                return
            self._show("SIGQUIT: the ranks say what they do, and where they are")
            for runner in list(self._runners.values()):
                runner.signal(signal.SIGQUIT)

        threading.Thread(target=show, name="horovod-inspect", daemon=True).start()

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

    def _pause(self) -> None:
        for runner in self._runners.values():
            runner.pause()
