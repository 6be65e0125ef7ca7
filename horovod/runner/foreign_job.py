# SPDX-License-Identifier: Apache-2.0
"""A job whose ranks mpirun or jsrun starts, for those who look at it while it runs, or want its results.

    the store here <- address and secret in the environment -> mpirun -> ranks, which report to it

The ranks meet as mpirun has them meet; the store serves their reports, and the function and the results of
horovod.run. The secret travels as the other variables do, never on a command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Dict, List, Optional

from horovod.rendezvous import auth
from horovod.rendezvous.readers import own
from horovod.runner.addresses import choose_addresses
from horovod.runner.host_runner import WorkerExited, WorkerSpec
from horovod.runner.job_frame import JobFrame
from horovod.runner.local_host import LocalHost
from horovod.runner.output import Output
from horovod.runner.placement import get_host_assignments
from horovod.runner.settings import JobSettings, working_directory
from horovod.runner.supervision import Interrupted, JobInterrupted

if TYPE_CHECKING:
    from horovod.rendezvous.store_server import StoreServer


class CommandFailed(RuntimeError):
    """The other launcher ended with an error; which rank was to blame it does not say.

    Attributes:
        code: its exit status.
        hosts: of the ranks, in order, as it was asked to place them.
    """

    def __init__(self, name: str, code: int, hosts: List[str]) -> None:
        super().__init__(f"{name} failed with exit code {code}")
        self.code, self.hosts = code, hosts


class ForeignJob(JobFrame):
    """The other launcher is this one's only worker.

    Args:
        command: makes its command line from the settings, once their environment is complete.
        environment: the same of its environment.
        prepare: called with the store once it serves.
    """

    def __init__(
        self,
        settings: JobSettings,
        command: Callable[[JobSettings], List[str]],
        environment: Callable[[JobSettings], Dict[str, str]],
        prepare: Optional[Callable[[StoreServer], None]] = None,
    ) -> None:
        super().__init__(settings)
        self._command, self._environment, self._prepare = command, environment, prepare
        self._name = ""
        self._slots = get_host_assignments(settings.hosts, settings.num_proc, settings.num_proc)

    @property
    def finished(self) -> List[str]:
        """After success: by which names the store knows the ranks, in order."""
        return [str(slot.rank) for slot in self._slots]

    def _make_output(self) -> Output:
        settings = self.settings
        return Output(1, stdout=settings.stdout, stderr=settings.stderr, label=lambda worker: "")

    def _start(self) -> None:
        from horovod.rendezvous.store_server import StoreServer

        settings = self.settings
        plan = choose_addresses([host.hostname for host in settings.hosts], settings.nics)
        secret = auth.make_secret()
        self.store = StoreServer(secret, plan.bind, notice=self.say, on_event=self._on_store_event)
        self.onlooker.serve(self.store)
        if self._prepare is not None:
            self._prepare(self.store)
        settings.env[own.STORE] = f"{plan.bind[0]}:{self.store.port}"
        settings.env[own.SECRET] = own.encode_secret(secret)
        argv = self._command(settings)
        self._name = argv[0]
        runner = self._runners["localhost"] = LocalHost("localhost", self._output.feed, self._events.put)
        runner.open()
        for slot in self._slots:
            self.onlooker.started(str(slot.rank), slot.hostname, slot.rank)
        runner.start(WorkerSpec(0, argv, self._environment(settings), working_directory()))

    def _supervise(self) -> None:
        while True:
            event = self._heard()
            if isinstance(event, Interrupted):
                raise JobInterrupted(event.number)
            if isinstance(event, WorkerExited):
                for name in self.finished:
                    self.onlooker.exited(name, event.code)
                if event.code != 0:
                    raise CommandFailed(self._name, event.code, [slot.hostname for slot in self._slots])
                return


def run_watched(
    settings: JobSettings,
    command: Callable[[JobSettings], List[str]],
    environment: Callable[[JobSettings], Dict[str, str]],
) -> int:
    """Runs a job that mpirun or jsrun starts, and lets the user look at it. Returns its exit status."""
    try:
        ForeignJob(settings, command, environment).run()
    except CommandFailed as failed:
        return failed.code
    return 0
