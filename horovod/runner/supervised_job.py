# SPDX-License-Identifier: Apache-2.0
"""A job under supervision: whatever started its ranks, it is watched, reported on and cleaned up alike.

subclass: a host runner for each host -> events -> Supervisor -> everything ended
"""

from __future__ import annotations

import queue
import time
from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Union

from horovod.runner.host_runner import Event, HostRunner, WorkerExited, on_all
from horovod.runner.output import Output
from horovod.runner.placement import SlotInfo
from horovod.runner.settings import JobSettings
from horovod.runner.signals import Signals
from horovod.runner.supervision import Interrupted, JobInterrupted, Supervisor, WorkerFailure, announcement

if TYPE_CHECKING:
    from horovod.rendezvous.store_server import StoreServer

# How often hosts are asked for how long they have been silent.
_SILENCE_CHECK_SECONDS = 1.0
# How long a reader who is slow to take the last lines is waited for: after a failure, which should be read,
# and after a signal, whose sender wants an end.
_READER_SECONDS, _INTERRUPTED_SECONDS = 60.0, 1.0


class SupervisedJob:
    """A running (or to be run) static job. Subclasses start its ranks.

    Attributes:
        slots: the ranks, with the hosts' names of `_runners`; known when `_start` returns.
        store: the job's store, once it serves.
    """

    # Who tells the user about the job.
    NAME = "horovodrun"

    def __init__(self, settings: JobSettings) -> None:
        self.settings = settings
        self.slots: Sequence[SlotInfo] = ()
        self.store: Optional[StoreServer] = None
        self._events: queue.SimpleQueue[Union[Event, Interrupted]] = queue.SimpleQueue()
        self._runners: Dict[str, HostRunner] = {}
        self._several_hosts = False

    def run(self) -> None:
        """Runs the job to its end. Raises JobFailed, HostError or JobInterrupted; leaves nothing behind."""
        settings = self.settings
        self._output = Output(
            settings.num_proc,
            settings.output_filename,
            settings.prefix_output_with_timestamp,
            settings.stdout,
            settings.stderr,
        )
        clean = False
        patience = _READER_SECONDS
        try:
            with Signals(lambda number: self._events.put(Interrupted(number)), self._pause):
                try:
                    self._start()
                    self._supervise()
                    clean = True
                except JobInterrupted:
                    patience = _INTERRUPTED_SECONDS
                    raise
                finally:
                    if not clean:
                        on_all(self._runners.values(), lambda runner: runner.terminate())
        finally:
            self._let_go(patience)

    @property
    def finished(self) -> List[str]:
        """After success: by which names the store knows the workers, in the order of their ranks."""
        return [str(rank) for rank in range(len(self.slots))]

    def say(self, text: str, level: int = 0) -> None:
        """Tells the user something about the job itself, on standard error."""
        if self.settings.verbose >= level:
            self._output.say(f"{self.NAME}: {text}")

    def _start(self) -> None:
        """Starts every rank on a runner."""
        raise NotImplementedError

    # --------------------------------------------------------------------------------------- watch

    def _supervise(self) -> None:
        settings = self.settings
        supervisor = Supervisor(
            self.slots, time.monotonic(), settings.start_timeout, settings.network_timeout, self._output.tail
        )
        while not supervisor.over:
            event = self._next_event(supervisor.wake_at())
            now = time.monotonic()
            if event is not None:
                supervisor.handle(event, now)
                self._announce(event)
            if self._several_hosts:
                supervisor.silences({host: runner.silence() for host, runner in self._runners.items()})
            supervisor.tick(now)
            for level, text in supervisor.words():
                self.say(text, level)
        if supervisor.error is not None:
            raise supervisor.error

    def _next_event(self, wake_at: Optional[float]) -> Union[Event, Interrupted, None]:
        """The next event; None when it is time to look at the clock."""
        waits = [_SILENCE_CHECK_SECONDS] if self._several_hosts else []
        waits += [] if wake_at is None else [max(wake_at - time.monotonic(), 0.0)]
        try:
            return self._events.get(timeout=min(waits) if waits else None)
        except queue.Empty:
            return None

    def _announce(self, event: Union[Event, Interrupted]) -> None:
        """Tells ranks that wait in hvd.init() for one that will not come any more."""
        if self.store is not None and isinstance(event, WorkerExited):
            tail = self._output.tail(event.worker)
            failure = WorkerFailure(event.worker, event.host, event.code, tail)
            self.store.lost(str(event.worker), announcement(failure))

    # ----------------------------------------------------------------------------------------- end

    def _let_go(self, patience: float) -> None:
        """Delivers what is left of the output and closes everything, within the given time."""
        self._output.hurry(patience)
        on_all(self._runners.values(), lambda runner: runner.close(patience))
        if self.store is not None:
            self.store.close()
        self._output.close()

    def _pause(self) -> None:
        for runner in self._runners.values():
            runner.pause()
