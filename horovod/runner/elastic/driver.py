# SPDX-License-Identifier: Apache-2.0
"""Runs an elastic job: one loop owns everything, whatever happens comes to it through one queue.

    discovery ──┐
    host runners├─> queue ─> ElasticSupervisor ─> actions ─> host runners, the store, the user
    store ──────┤
    signals ────┘

For other ways to find hosts or to run workers there, give a HostDiscovery and a `make_runner` of your own.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from horovod.rendezvous import auth
from horovod.rendezvous.network import loopback
from horovod.rendezvous.store_server import Event as StoreEvent
from horovod.rendezvous.store_server import StoreServer
from horovod.runner.elastic import actions as do
from horovod.runner.elastic import placement
from horovod.runner.elastic.discovery import DISCOVER_HOSTS_FREQUENCY_SECS, HostDiscovery
from horovod.runner.elastic.hosts import KnownHosts, Range
from horovod.runner.elastic.limits import Limits
from horovod.runner.elastic.reach import Reach
from horovod.runner.elastic.supervision import ElasticSupervisor
from horovod.runner.elastic.telling import Teller
from horovod.runner.host_runner import (
    Event,
    HostRunner,
    HostUnreachable,
    OutputFunction,
    ReportFunction,
    WorkerSpec,
)
from horovod.runner.job import make_runner
from horovod.runner.job_frame import JobFrame
from horovod.runner.output import Output
from horovod.runner.settings import JobSettings, working_directory
from horovod.runner.supervision import Interrupted
from horovod.runner.worker_env import elastic_worker_env

MakeRunner = Callable[[str, bool, JobSettings, OutputFunction, ReportFunction], HostRunner]
# Where workers tell the driver something, and the driver tells workers: keys of the job's own board.
TOLD, NEWS = "elastic/told/", "elastic/news/"

# How long discovery that is asking may take to notice that the job has ended.
_DISCOVERY_SECONDS = 1.0


@dataclass(frozen=True)
class _HostsFound:
    hosts: Mapping[str, int]


@dataclass(frozen=True)
class _DiscoveryFailed:
    error: Exception
    first: bool


_AnyEvent = Union[Event, StoreEvent, Interrupted, _HostsFound, _DiscoveryFailed]


class ElasticJob(JobFrame):
    """A running (or to be run) elastic job.

    Args:
        settings: the command, the environment and the like; its hosts and num_proc are not looked at.
        limits: how many ranks, how long to wait.
        discovery: asked every second which hosts there are.
        cooldown_range: see hosts.KnownHosts.
        prepare: called with the store once it serves.
        make_runner: makes what runs workers on a host: (host, whether it is this machine, settings, output,
            report) -> HostRunner. Default: processes of this machine, or an agent over ssh.
        addresses: where the store listens; default: the loopback address, and the way to each other host.
            With it, all workers use the first of them.
        events: a file for what happens, as JSON lines.

    Attributes:
        finished: after success the names of the workers that ended well, in the order of their ranks.
    """

    def __init__(
        self,
        settings: JobSettings,
        limits: Limits,
        discovery: HostDiscovery,
        cooldown_range: Optional[Range] = None,
        prepare: Optional[Callable[[StoreServer], None]] = None,
        make_runner: MakeRunner = make_runner,
        addresses: Optional[List[str]] = None,
        events: Optional[str] = None,
    ) -> None:
        super().__init__(settings)
        self.finished: List[str] = []
        self._limits, self._discovery = limits, discovery
        self.fewest = limits.min_np
        self._hosts = KnownHosts(cooldown_range)
        self._prepare, self._make_runner = prepare, make_runner
        self._addresses, self._events_file = addresses, events
        self._closing: List[threading.Thread] = []
        self._labels: Dict[int, str] = {}
        self._numbers: Dict[str, int] = {}  # worker's name -> number
        self._news: Counter[str] = Counter()
        self._stopping = threading.Event()
        self._discovering = threading.Thread(target=self._discover, name="horovod-discovery", daemon=True)

    def _make_output(self) -> Output:
        settings = self.settings
        self._cwd = working_directory()
        self._teller = Teller(self._show, settings.output_filename, self._events_file)
        return Output(
            0, settings.output_filename, settings.prefix_output_with_timestamp, settings.stdout,
            settings.stderr, lambda worker: self._labels.get(worker, "?"),
        )  # fmt: skip

    # --------------------------------------------------------------------------------------- start

    def _start(self) -> None:
        self._secret = auth.make_secret()
        self.store = StoreServer(
            self._secret,
            self._addresses or [loopback()],
            notice=self.say,
            on_event=self._on_store_event,
            driven=True,
        )
        self.onlooker.serve(self.store)
        self._reach = Reach(self.store, self.settings.nics)
        if self._prepare is not None:
            self._prepare(self.store)
        self._discovering.start()

    def _discover(self) -> None:
        """Asks which hosts there are, once a second; runs on a thread of its own."""
        last: Optional[Mapping[str, int]] = None
        first = True
        while not self._stopping.is_set():
            try:
                found = self._discovery.find_available_hosts_and_slots()
                if found != last:
                    self._events.put(_HostsFound(dict(found)))
                last = dict(found)
            except Exception as error:
                self._events.put(_DiscoveryFailed(error, first))
            first = False
            self._stopping.wait(DISCOVER_HOSTS_FREQUENCY_SECS)

    # --------------------------------------------------------------------------------------- watch

    def _supervise(self) -> None:
        supervisor = ElasticSupervisor(self._limits, self._hosts, time.monotonic(), self._output.tail)
        while not supervisor.over:
            wake_at = supervisor.wake_at(time.monotonic())
            event: Optional[_AnyEvent] = self._next_event(None if wake_at is None else wake_at + 0.001)
            now = time.monotonic()
            if event is None:
                supervisor.tick(now)
            elif isinstance(event, _HostsFound):
                supervisor.hosts_found(event.hosts, now)
            elif isinstance(event, _DiscoveryFailed):
                self._discovery_failed(event)
            elif isinstance(event, StoreEvent) and event.kind == "told":
                self._told(supervisor, event.text, now)
            else:
                supervisor.handle(event, now)
            if self._has_far_hosts():
                supervisor.silences(self._silences(), now)
            for action in supervisor.actions():
                self._do(action)
        for action in supervisor.actions():
            if isinstance(action, do.Say):
                self._do(action)
        if supervisor.error is not None:
            raise supervisor.error
        self.finished = [name for _, name in sorted(supervisor.finished)]

    def _on_store_event(self, event: StoreEvent) -> None:
        if not self.onlooker.hears(event):
            self._events.put(event)

    def _name_of(self, worker: int) -> str:
        return next((name for name, number in self._numbers.items() if number == worker), str(worker))

    def _has_far_hosts(self) -> bool:
        return any(not self._reach.is_local(host) for host in self._runners)

    def _told(self, supervisor: ElasticSupervisor, key: str, now: float) -> None:
        """A worker said something: "elastic/told/state/node7[1]#12"."""
        assert self.store is not None
        value = self.store.pop(key) if key.startswith(TOLD) else None
        if value is not None:
            kind, _, name = key[len(TOLD) :].partition("/")
            facts: Dict[str, Any] = json.loads(value)
            supervisor.told(kind, name, facts, now)

    def _discovery_failed(self, event: _DiscoveryFailed) -> None:
        if event.first:
            raise RuntimeError(str(event.error)) from event.error
        self.say(f"cannot find out which hosts there are, trying again: {event.error}")

    # --------------------------------------------------------------------------------------- do it

    def _do(self, action: do.Action) -> None:
        assert self.store is not None
        if isinstance(action, do.Say):
            self._teller.tell(action)
            self.onlooker.happened(action.kind, action.text)
        elif isinstance(action, do.OpenHost):
            self._open_host(action.host)
        elif isinstance(action, do.CloseHost):
            self._close_host(action.host)
        elif isinstance(action, do.StartWorker):
            self._start_worker(action)
        elif isinstance(action, do.EndWorker):
            if action.host in self._runners:
                self._runners[action.host].end(action.number)
        elif isinstance(action, do.Assign):
            self._assign(action)
        elif isinstance(action, do.Dismiss):
            self.store.dismiss(action.name, action.reason)
        elif isinstance(action, do.Lost):
            self.store.lost(action.name, action.cause)
        elif isinstance(action, do.Notify):
            number = self._news[action.name]
            self._news[action.name] += 1
            news = {"generation": action.generation, "change": int(action.change)}
            news["timestamp"] = sum(self._news.values())  # grows, whoever rank 0 is
            self.store.set(f"{NEWS}{action.name}/{number}", json.dumps(news).encode())

    def _open_host(self, host: str) -> None:
        made: List[HostRunner] = []

        def report(event: Event) -> None:
            if made and self._runners.get(host) is made[0]:  # not one that was given up
                self._events.put(event)

        local = self._reach.is_local(host)
        made.append(self._make_runner(host, local, self.settings, self._output.feed, report))
        self._runners[host] = made[0]
        made[0].open()

    def _close_host(self, host: str) -> None:
        runner = self._runners.pop(host)

        def close() -> None:
            runner.terminate()
            runner.close(1.0)

        self._closing.append(threading.Thread(target=close, name=f"horovod-close-{host}", daemon=True))
        self._closing[-1].start()

    def _start_worker(self, action: do.StartWorker) -> None:
        try:
            address, port = self._store_for(action.host)
        except ValueError as error:
            self._events.put(HostUnreachable(action.host, str(error)))
            return
        self._labels[action.number] = f"{action.host}[{action.slot}]"
        self._numbers[action.name] = action.number
        self._output.add_worker(action.number, f"worker.{action.number}")
        env = elastic_worker_env(
            self.settings.env, action.name, action.host, action.slot, address, port, self._secret,
            self.settings.nics,
        )  # fmt: skip
        self.onlooker.started(action.name, action.host)
        self._runners[action.host].start(WorkerSpec(action.number, self.settings.command, env, self._cwd))

    def _store_for(self, host: str) -> Tuple[str, int]:
        assert self.store is not None
        if self._addresses:
            return self.store.address, self.store.port
        return self._reach.store_for(host)

    def _assign(self, action: do.Assign) -> None:
        assert self.store is not None
        for rank, one in enumerate(action.ordered):
            self._labels[self._numbers[one.name]] = str(rank)
        self.onlooker.renumbered({one.name: rank for rank, one in enumerate(action.ordered)})
        hosts = dict.fromkeys(one.host for one in action.ordered)
        addresses = {} if self._addresses else self._reach.advertised(hosts)
        opened = self.store.assign(placement.seats(action.ordered, addresses))
        assert opened == action.generation, f"the store is at generation {opened}, not {action.generation}"

    # ----------------------------------------------------------------------------------------- end

    def _end_all(self, error: BaseException) -> None:
        # Workers that take SIGTERM for a wish to leave in order learn so that there is no job any more.
        if self.store is not None:
            reason = str(error).partition("\n")[0]
            self.store.fail(f"the job has ended: {reason}")
        super()._end_all(error)

    def _let_go(self, patience: float) -> None:
        self._stopping.set()
        self._end_discovery()
        super()._let_go(patience)
        self._teller.close()

    def _end_discovery(self) -> None:
        """Lets nothing survive that it has started, also if it is just about to start it."""
        deadline = time.monotonic() + _DISCOVERY_SECONDS
        close = getattr(self._discovery, "close", None)  # the user's may be no HostDiscovery
        while close is not None:
            close()
            if not self._discovering.is_alive() or time.monotonic() >= deadline:
                return
            self._discovering.join(0.05)

    def _close_rest(self, patience: float) -> None:
        for thread in self._closing:
            thread.join(patience)
