# SPDX-License-Identifier: Apache-2.0
"""An elastic job in Spark tasks: every attempt at a task is a host with one slot, which comes and goes.

tasks -> agents that call -> hosts that the elastic driver finds -> workers in them, supervised by the driver
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Sequence

from horovod.rendezvous.readers import own
from horovod.runner.agent_socket import AgentListener, AgentSocket
from horovod.runner.common.util.timeout import TimeoutException
from horovod.runner.elastic.discovery import FixedHosts
from horovod.runner.elastic.driver import ElasticJob
from horovod.runner.elastic.limits import Limits
from horovod.runner.host_runner import HostRunner, OutputFunction, ReportFunction, WorkerSpec
from horovod.runner.remote_host import RemoteHost
from horovod.runner.settings import JobSettings
from horovod.spark.classic import ClassicTasks
from horovod.spark.explaining import explained
from horovod.spark.host_task import Launcher
from horovod.spark.placing import TaskFacts, shown
from horovod.spark.tasks_job import SparkEnded, in_task, too_few

if TYPE_CHECKING:
    from horovod.rendezvous.store_server import StoreServer


class ElasticTasksJob(ElasticJob):
    """A running (or to be run) elastic job in tasks of a classic Spark session.

    Args:
        settings: as for TasksJob; num_proc is the number of tasks, hence the most ranks there can be.
        limits: how many ranks, how long to wait.
        tasks: has Spark start the tasks, and try those again that it loses.
        addresses: of this machine, which the tasks can reach.
        prepare: called with the store once it serves.
    """

    NAME = "horovod.spark"

    def __init__(
        self,
        settings: JobSettings,
        limits: Limits,
        tasks: ClassicTasks,
        addresses: Sequence[str],
        prepare: Callable[[StoreServer], None],
    ) -> None:
        self._found = FixedHosts({})
        super().__init__(
            settings, limits, self._found, None, prepare, self._make_task_runner, list(addresses)
        )
        self._tasks = tasks
        self._listener: Optional[AgentListener] = None
        self._agents: Dict[str, AgentSocket] = {}  # by the names of hosts, in the order of their calls
        self._began = self._clean = False

    def _start(self) -> None:
        super()._start()
        assert self._addresses is not None
        self._start_by = time.monotonic() + self.settings.start_timeout
        self._listener = AgentListener(self._secret, self._addresses, self._called)
        launcher = Launcher(tuple(self._addresses), self._listener.port, self._secret)
        # What the driver's queue carries beside its own events is taken out in _next_event.
        put: Callable[[Any], None] = self._events.put
        self._tasks.start(launcher, lambda error: put(SparkEnded(error)))

    # ------------------------------------------------------------------------------ tasks that come

    def _called(self, agent: AgentSocket) -> None:
        """A task is there; on the listener's thread."""
        self._agents[shown(TaskFacts.from_facts(agent.facts))] = agent
        self._found.set(dict.fromkeys(self._agents, 1))

    def _make_task_runner(
        self, host: str, local: bool, settings: JobSettings, output: OutputFunction, report: ReportFunction
    ) -> HostRunner:
        agent = self._agents[host]
        return _TaskRunner(TaskFacts.from_facts(agent.facts), agent, settings, output, report)

    def _next_event(self, wake_at: Optional[float]) -> Any:
        self._began = self._began or bool(self._runners)
        if not self._began:
            wake_at = self._start_by if wake_at is None else min(wake_at, self._start_by)
        event: Any = super()._next_event(wake_at)
        if isinstance(event, SparkEnded):
            if event.error is not None:  # Spark has given up, and ends the other tasks as well
                raise explained(event.error) from event.error
            return None
        if event is None and not self._began and time.monotonic() >= self._start_by:
            raise TimeoutException(too_few(len(self._agents), self._limits.num_proc, self.settings))
        return event

    # ----------------------------------------------------------------------------------------- end

    def _supervise(self) -> None:
        super()._supervise()
        self._clean = True

    def _let_go(self, patience: float) -> None:
        if self._listener is not None:
            self._listener.close()
        super()._let_go(patience)
        for agent in list(self._agents.values()):
            agent.close()
        # With more attempts or fewer than tasks, Spark may be about to start one that would find nobody.
        self._tasks.end(self._clean and len(self._agents) == self.settings.num_proc)


class _TaskRunner(RemoteHost):
    """Runs the worker of a task, with the task's Python, folder and devices."""

    def __init__(
        self,
        task: TaskFacts,
        agent: AgentSocket,
        settings: JobSettings,
        output: OutputFunction,
        report: ReportFunction,
    ) -> None:
        super().__init__(shown(task), agent, output, report, settings.env, settings.network_timeout)
        self._task = task

    def start(self, spec: WorkerSpec) -> None:
        """Has a worker started in the task."""
        env = {**spec.env, own.ADDRESS: self._task.address}  # where this task reaches the driver
        super().start(replace(spec, **in_task(self._task, spec.command, env)))
