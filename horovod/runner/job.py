# SPDX-License-Identifier: Apache-2.0
"""One job from start to end: place ranks, start them on every host, watch, report, clean up.

settings -> slots -> store -> a host runner on each host -> events -> Supervisor -> everything ended
"""

from __future__ import annotations

import queue
import socket
import time
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Union

from horovod.rendezvous import auth
from horovod.rendezvous.network import listen
from horovod.runner.addresses import choose_addresses
from horovod.runner.host_runner import (
    Event,
    HostRunner,
    OutputFunction,
    ReportFunction,
    WorkerExited,
    WorkerSpec,
    on_all,
)
from horovod.runner.local_host import LocalHost, check_room
from horovod.runner.output import Output
from horovod.runner.placement import get_host_assignments, ranks_per_host, slots_by_host
from horovod.runner.settings import JobSettings, working_directory
from horovod.runner.signals import Signals
from horovod.runner.supervision import (
    HostError,
    Interrupted,
    JobFailed,
    JobInterrupted,
    Supervisor,
    WorkerFailure,
    announcement,
)
from horovod.runner.worker_env import worker_env

if TYPE_CHECKING:
    from horovod.rendezvous.store_server import StoreServer

__all__ = ["HostError", "Job", "JobFailed", "JobInterrupted", "JobSettings", "WorkerFailure", "make_runner"]

# How often hosts are asked for how long they have been silent.
_SILENCE_CHECK_SECONDS = 1.0
# How long a reader who is slow to take the last lines is waited for: after a failure, which should be read,
# and after a signal, whose sender wants an end.
_READER_SECONDS, _INTERRUPTED_SECONDS = 60.0, 1.0


def make_runner(
    host: str, local: bool, settings: JobSettings, output: OutputFunction, report: ReportFunction
) -> HostRunner:
    """What runs workers on a host of a job: this machine's processes, or an agent over ssh."""
    if local:
        return LocalHost(host, output, report)
    from horovod.runner.remote_host import RemoteHost
    from horovod.runner.ssh_channel import SshChannel

    channel = SshChannel(host, settings)
    return RemoteHost(host, channel, output, report, settings.env, settings.network_timeout)


class Job:
    """A running (or to be run) static job.

    Args:
        prepare: called with the store once it serves.
    """

    def __init__(
        self, settings: JobSettings, prepare: Optional[Callable[[StoreServer], None]] = None
    ) -> None:
        self.settings = settings
        counts = ranks_per_host(settings.hosts, settings.num_proc)
        self._plan = choose_addresses(list(counts), settings.nics)
        check_room(sum(counts[host] for host in self._plan.local), bool(settings.output_filename))
        self.slots = get_host_assignments(settings.hosts, settings.num_proc, settings.num_proc)
        self.store: Optional[StoreServer] = None
        self._prepare = prepare
        self._events: queue.SimpleQueue[Union[Event, Interrupted]] = queue.SimpleQueue()
        self._runners: Dict[str, HostRunner] = {}
        self._sockets: List[socket.socket] = []
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
            self._output.say(f"horovodrun: {text}")

    # --------------------------------------------------------------------------------------- start

    def _start(self) -> None:
        plan, by_host = self._plan, slots_by_host(self.slots)
        for line in plan.reasons:
            self.say(line, level=1)
        self._several_hosts = len(plan.local) < len(by_host)
        here = working_directory()
        secret = auth.make_secret()
        self._sockets = listen(plan.bind)
        port = int(self._sockets[0].getsockname()[1])
        for host, slots in by_host.items():
            runner = make_runner(host, host in plan.local, self.settings, self._output.feed, self._events.put)
            self._runners[host] = runner
            runner.open()
            for slot in slots:
                env = worker_env(
                    self.settings.env, slot, plan.store_for[host], port, secret, self.settings.nics
                )
                runner.start(WorkerSpec(slot.rank, self.settings.command, env, here))
        self._open_store(secret)

    def _open_store(self, secret: bytes) -> None:
        """Starts the store while the workers start; the ports are open already, so nobody knocks in vain."""
        from horovod.rendezvous.store_server import StoreServer

        self.store = StoreServer(secret, size=len(self.slots), notice=self.say, sockets=self._sockets)
        if self._prepare is not None:
            self._prepare(self.store)

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
        for sock in self._sockets:
            sock.close()
        self._output.close()

    def _pause(self) -> None:
        for runner in self._runners.values():
            runner.pause()
