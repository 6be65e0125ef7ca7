# SPDX-License-Identifier: Apache-2.0
"""A static job on given hosts: place ranks, start them on every host, here or over ssh."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Callable, List, Optional

from horovod.rendezvous import auth
from horovod.rendezvous.network import listen
from horovod.runner.addresses import choose_addresses
from horovod.runner.host_runner import HostRunner, OutputFunction, ReportFunction, WorkerSpec
from horovod.runner.local_host import LocalHost, check_room
from horovod.runner.placement import get_host_assignments, ranks_per_host, slots_by_host
from horovod.runner.settings import JobSettings, working_directory
from horovod.runner.supervised_job import SupervisedJob
from horovod.runner.supervision import HostError, JobFailed, JobInterrupted, WorkerFailure
from horovod.runner.worker_env import worker_env

if TYPE_CHECKING:
    from horovod.rendezvous.store_server import StoreServer

__all__ = ["HostError", "Job", "JobFailed", "JobInterrupted", "JobSettings", "WorkerFailure", "make_runner"]


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


class Job(SupervisedJob):
    """A running (or to be run) static job.

    Args:
        prepare: called with the store once it serves.
    """

    def __init__(
        self, settings: JobSettings, prepare: Optional[Callable[[StoreServer], None]] = None
    ) -> None:
        super().__init__(settings)
        counts = ranks_per_host(settings.hosts, settings.num_proc)
        self._plan = choose_addresses(list(counts), settings.nics)
        check_room(sum(counts[host] for host in self._plan.local), bool(settings.output_filename))
        self.slots = get_host_assignments(settings.hosts, settings.num_proc, settings.num_proc)
        self._prepare = prepare
        self._sockets: List[socket.socket] = []

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
                self.onlooker.started(str(slot.rank), host, slot.rank)
                runner.start(WorkerSpec(slot.rank, self.settings.command, env, here))
        self._open_store(secret)

    def _open_store(self, secret: bytes) -> None:
        """Starts the store while the workers start; the ports are open already, so nobody knocks in vain."""
        from horovod.rendezvous.store_server import StoreServer

        self.store = StoreServer(
            secret,
            size=len(self.slots),
            notice=self.say,
            sockets=self._sockets,
            on_event=self._on_store_event,
        )
        self.onlooker.serve(self.store)
        if self._prepare is not None:
            self._prepare(self.store)

    def _let_go(self, patience: float) -> None:
        super()._let_go(patience)
        for sock in self._sockets:
            sock.close()
