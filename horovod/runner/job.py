# SPDX-License-Identifier: Apache-2.0
"""One job from start to end: place ranks, start them on every host, watch, report, clean up.

settings -> slots -> store -> workers on each host -> first failure or all done -> everything ended
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Protocol, Tuple

from horovod.rendezvous import auth
from horovod.rendezvous.identity import ranks_text
from horovod.rendezvous.network import listen
from horovod.rendezvous.readers.own import encode_secret
from horovod.runner.hosts import HostInfo, SlotInfo, get_host_assignments
from horovod.runner.output import Output
from horovod.runner.workers import Workers, WorkerSpec

if TYPE_CHECKING:
    from horovod.rendezvous.store_server import StoreServer

# After the first failure, how long to collect others before naming the one to blame.
_BLAME_SECONDS = 0.25
# Errors that only say "somebody else failed".
_CONSEQUENCES = ("HorovodInternalError", "StoreError", "disappeared while the job was starting")


@dataclass
class JobSettings:
    """Everything a static job needs to know."""

    command: List[str]
    num_proc: int
    hosts: List[HostInfo]
    env: Dict[str, str]
    ssh_port: Optional[int] = None
    ssh_identity_file: Optional[str] = None
    start_timeout: float = 30.0
    nics: Optional[List[str]] = None
    output_filename: Optional[str] = None
    prefix_output_with_timestamp: bool = False
    verbose: int = 0
    stdout: Optional[Any] = None
    stderr: Optional[Any] = None


@dataclass
class WorkerFailure:
    """One worker that ended badly."""

    rank: int
    host: str
    code: int
    tail: List[str] = field(default_factory=list)


class JobFailed(RuntimeError):
    """One or more workers ended with an error; `first` is the one to look at."""

    def __init__(self, first: WorkerFailure) -> None:
        self.first = first
        last = "".join(f"\n    {line}" for line in first.tail)
        super().__init__(
            "Horovod detected that one or more processes exited with non-zero status, thus causing the job "
            "to be terminated. The first process to do so was:\n"
            f"Process name: {first.rank}\nExit code: {first.code}{_signal_text(first.code)}\n"
            f"Host: {first.host}\n"
            + (f"Last lines of its output:{last}\n" if last else "It printed nothing.\n")
        )


class JobInterrupted(RuntimeError):
    """The launcher was asked to stop (Ctrl-C or a signal)."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"stopped by {signal.Signals(number).name}; all workers were ended")


class HostError(RuntimeError):
    """A host could not be reached or was lost."""


class HostRunner(Protocol):
    """Runs workers on one host; reports ("exit", rank, code) and ("host", name, error) events."""

    def start(self, specs: List[WorkerSpec]) -> None: ...

    def signal(self, number: int) -> None: ...

    def pause(self) -> None: ...

    def terminate(self) -> None: ...

    def close(self) -> None: ...


Event = Tuple[str, Any, Any]


class Job:
    """A running (or to be run) static job."""

    def __init__(
        self, settings: JobSettings, prepare: Optional[Callable[[StoreServer], None]] = None
    ) -> None:
        self.settings = settings
        self.slots = get_host_assignments(settings.hosts, settings.num_proc, settings.num_proc)
        self._prepare = prepare
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._runners: Dict[str, HostRunner] = {}
        self._left = {slot.rank for slot in self.slots}
        self._failures: List[WorkerFailure] = []
        self.store: Optional[StoreServer] = None

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
        restore = self._catch_signals()
        clean = False
        try:
            self._start()
            self._watch()
            clean = True
        finally:
            self._end(clean)
            restore()

    def say(self, text: str, level: int = 0) -> None:
        """Tells the user something about the job itself, on standard error."""
        if self.settings.verbose >= level:
            stream = self.settings.stderr or sys.stderr
            print(f"horovodrun: {text}", file=stream, flush=True)

    # --------------------------------------------------------------------------------------- start

    def _start(self) -> None:
        from horovod.runner.addresses import choose_addresses

        by_host: Dict[str, List[SlotInfo]] = {}
        for slot in self.slots:
            by_host.setdefault(slot.hostname, []).append(slot)
        plan = choose_addresses(list(by_host), self.settings.nics)
        for line in plan.reasons:
            self.say(line, level=1)
        secret = auth.make_secret()
        sockets = listen(plan.bind)
        port = int(sockets[0].getsockname()[1])
        shared = self._shared_env(secret)
        for host, slots in by_host.items():
            specs = [
                self._spec(slot, _worker_env(shared, slot, plan.store_for[host], port)) for slot in slots
            ]
            runner = self._runners[host] = self._make_runner(host, host in plan.local)
            if host in plan.local:
                runner.start(specs)
            else:  # in parallel: a hundred hosts take as long as the slowest
                threading.Thread(target=runner.start, args=(specs,), daemon=True).start()
        self._open_store(secret, sockets)
        self._await_hosts([host for host in by_host if host not in plan.local])

    def _open_store(self, secret: bytes, sockets: List[socket.socket]) -> None:
        """Starts the store while the workers start; the ports are open already, so nobody knocks in vain."""
        from horovod.rendezvous.store_server import StoreServer

        self.store = StoreServer(secret, size=len(self.slots), notice=self.say, sockets=sockets)
        if self._prepare is not None:
            self._prepare(self.store)

    def _shared_env(self, secret: bytes) -> Dict[str, str]:
        env = dict(self.settings.env, PYTHONUNBUFFERED="1", _HOROVOD_SECRET_KEY=encode_secret(secret))
        if self.settings.nics:
            env["HOROVOD_GLOO_IFACE"] = self.settings.nics[0]
            env.setdefault("NCCL_SOCKET_IFNAME", ",".join(self.settings.nics))
        return env

    def _spec(self, slot: SlotInfo, env: Dict[str, str]) -> WorkerSpec:
        return WorkerSpec(slot.rank, self.settings.command, env, os.getcwd())

    def _make_runner(self, host: str, local: bool) -> HostRunner:
        def on_exit(rank: int, code: int) -> None:
            self._events.put(("exit", rank, code))

        if local:
            return Workers(self._output.feed, on_exit)
        from horovod.runner.remote import RemoteHost

        def on_host(state: str, detail: str) -> None:
            self._events.put((state, host, detail))

        return RemoteHost(host, self.settings, self._output.feed, on_exit, on_host)

    def _await_hosts(self, hosts: List[str]) -> None:
        """Waits until every remote host's agent has started its workers, saying who is still awaited."""
        waiting = set(hosts)
        deadline = time.monotonic() + self.settings.start_timeout
        next_word = time.monotonic() + 2.0
        while waiting:
            try:
                kind, who, what = self._events.get(timeout=0.25)
            except queue.Empty:
                now = time.monotonic()
                if now > deadline:
                    raise HostError(
                        f"Timed out waiting for {', '.join(sorted(waiting))} to start workers over ssh. "
                        "Please check connectivity between servers. You may need to increase the "
                        "--start-timeout parameter if you have too many servers. "
                        f"Timeout after {self.settings.start_timeout:g} seconds."
                    ) from None
                if now > next_word:
                    next_word = now + 5.0
                    self.say(
                        f"{len(hosts) - len(waiting)} of {len(hosts)} remote hosts reached; "
                        f"waiting for {', '.join(sorted(waiting))}"
                    )
                continue
            if kind == "ready":
                waiting.discard(who)
                self.say(f"host {who} is ready ({what})", level=1)
            else:
                self._handle((kind, who, what))
                if self._failures:  # a worker on a fast host failed already: report that
                    return

    # --------------------------------------------------------------------------------------- watch

    def _watch(self) -> None:
        blame_at = None
        if self._failures:
            blame_at = time.monotonic() + _BLAME_SECONDS
        while self._left:
            try:
                wait = None if blame_at is None else max(blame_at - time.monotonic(), 0.0)
                self._handle(self._events.get(timeout=wait))
            except queue.Empty:
                break
            if self._failures and blame_at is None:
                blame_at = time.monotonic() + _BLAME_SECONDS
        if self._failures:
            raise JobFailed(self._culprit())

    def _handle(self, event: Event) -> None:
        kind, who, what = event
        if kind == "exit":
            self._left.discard(who)
            self._announce_end(who, what)
            if what != 0:
                self._failures.append(WorkerFailure(who, self.slots[who].hostname, what))
        elif kind == "lost":
            lost = [slot.rank for slot in self.slots if slot.hostname == who and slot.rank in self._left]
            if lost:
                raise HostError(f"Lost host {who} ({ranks_text(lost)}): {what}")
        elif kind == "unreachable":
            raise HostError(f"Could not start workers on host {who}: {what}")
        elif kind == "signal":
            raise JobInterrupted(who)

    def _announce_end(self, rank: int, code: int) -> None:
        """Whoever waits for this rank in hvd.init() need not wait any longer."""
        if self.store is not None:
            host = self.slots[rank].hostname
            cause = f"rank {rank} on {host} ended with exit code {code} before it joined"
            self.store.lost(str(rank), cause)

    def _culprit(self) -> WorkerFailure:
        """The first failure that is not merely the echo of another."""
        for failure in self._failures:
            failure.tail = self._output.tail(failure.rank)
        for failure in self._failures:
            if not any(word in line for line in failure.tail for word in _CONSEQUENCES):
                return failure
        return self._failures[0]

    # ----------------------------------------------------------------------------------------- end

    def _end(self, clean: bool) -> None:
        if not clean:
            enders = [
                threading.Thread(target=runner.terminate, daemon=True) for runner in self._runners.values()
            ]
            for ender in enders:
                ender.start()
            for ender in enders:
                ender.join()
        for runner in self._runners.values():
            runner.close()
        if self.store is not None:
            self.store.close()
        self._output.close()

    def _catch_signals(self) -> Callable[[], None]:
        """Turns SIGINT, SIGTERM and SIGHUP into events while the job runs."""
        if threading.current_thread() is not threading.main_thread():
            return lambda: None

        def handler(number: int, frame: object) -> None:
            self._events.put(("signal", number, None))

        def stopped(number: int, frame: object) -> None:
            for runner in self._runners.values():
                runner.pause()
            os.kill(os.getpid(), signal.SIGSTOP)

        before = {signal.SIGTSTP: signal.signal(signal.SIGTSTP, stopped)}
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup horovodrun ... &
                before[number] = signal.signal(number, handler)

        def restore() -> None:
            for number, old in before.items():
                signal.signal(number, old)

        return restore


def _worker_env(shared: Dict[str, str], slot: SlotInfo, address: str, port: int) -> Dict[str, str]:
    return dict(
        shared,
        HOROVOD_HOSTNAME=slot.hostname,
        HOROVOD_RANK=str(slot.rank),
        HOROVOD_SIZE=str(slot.size),
        HOROVOD_LOCAL_RANK=str(slot.local_rank),
        HOROVOD_LOCAL_SIZE=str(slot.local_size),
        HOROVOD_CROSS_RANK=str(slot.cross_rank),
        HOROVOD_CROSS_SIZE=str(slot.cross_size),
        HOROVOD_GLOO_RENDEZVOUS_ADDR=address,
        HOROVOD_GLOO_RENDEZVOUS_PORT=str(port),
        HOROVOD_CONTROLLER="gloo",
        HOROVOD_CPU_OPERATIONS=shared.get("HOROVOD_CPU_OPERATIONS", "gloo"),
    )


def _signal_text(code: int) -> str:
    if code > 128:
        try:
            return f" (ended by {signal.Signals(code - 128).name})"
        except ValueError:
            pass
    return ""
