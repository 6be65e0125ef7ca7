# SPDX-License-Identifier: Apache-2.0
"""A static job whose ranks run in Spark tasks: waits for the tasks to call, places ranks, starts one in each.

tasks -> agents that call (AgentListener) -> ranks in order -> a RemoteHost each -> supervised like any job
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Union

from horovod.runner.agent_socket import AgentListener, AgentSocket
from horovod.runner.common.util.timeout import TimeoutException
from horovod.runner.host_runner import Event, WorkerSpec
from horovod.runner.remote_host import RemoteHost
from horovod.runner.settings import JobSettings
from horovod.runner.supervised_job import SupervisedJob
from horovod.runner.supervision import Interrupted, JobInterrupted
from horovod.runner.worker_env import worker_env
from horovod.spark.explaining import explained
from horovod.spark.host_task import Launcher
from horovod.spark.placing import TaskFacts, in_rank_order, shown, slots_of
from horovod.spark.task import DEVICES

if TYPE_CHECKING:
    from horovod.rendezvous.store_server import StoreServer

_FIRST_WORD_SECONDS, _NEXT_WORD_SECONDS = 5.0, 15.0


@dataclass(frozen=True)
class TaskCalled:
    """A Spark task has connected."""

    agent: AgentSocket


@dataclass(frozen=True)
class SparkEnded:
    """Spark's job is over; the error is None if all tasks returned."""

    error: Optional[Exception]


class TasksJob(SupervisedJob):
    """A running (or to be run) job in Spark tasks.

    Args:
        settings: num_proc, env, start_timeout and where output goes; `command` gets the task's Python in
            front, and there are no hosts.
        addresses: of this machine, which the tasks can reach.
        start_tasks: has Spark start as many tasks as there are ranks, each of which calls the launcher; and
            calls the function it is given when Spark is done with them, from any thread.
        end_tasks: waits until Spark has ended the tasks, after a clean job or (False) another one.
        prepare: called with the store once it serves.
    """

    NAME = "horovod.spark"

    def __init__(
        self,
        settings: JobSettings,
        addresses: Sequence[str],
        start_tasks: Callable[[Launcher, Callable[[Optional[Exception]], None]], None],
        end_tasks: Callable[[bool], None],
        prepare: Callable[[StoreServer], None] = lambda store: None,
    ) -> None:
        super().__init__(settings)
        self._addresses = list(addresses)
        self._start_tasks, self._end_tasks = start_tasks, end_tasks
        self._prepare = prepare
        self._listener: Optional[AgentListener] = None
        self._called: Dict[int, AgentSocket] = {}
        self._spares: List[AgentSocket] = []
        self._several_hosts = True
        self._clean = False

    def _start(self) -> None:
        from horovod.rendezvous import auth
        from horovod.rendezvous.store_server import StoreServer

        secret = auth.make_secret()
        self.store = StoreServer(secret, self._addresses, size=self.settings.num_proc, notice=self.say)
        self._prepare(self.store)
        self._listener = AgentListener(secret, self._addresses, lambda agent: self._put(TaskCalled(agent)))
        launcher = Launcher(tuple(self._addresses), self._listener.port, secret)
        self._start_tasks(launcher, lambda error: self._put(SparkEnded(error)))
        self._await_tasks()
        self._start_ranks(secret)

    def _put(self, event: Any) -> None:
        self._events.put(event)

    # ------------------------------------------------------------------------------ waiting for tasks

    def _await_tasks(self) -> None:
        began = time.monotonic()
        deadline, next_word = began + self.settings.start_timeout, began + _FIRST_WORD_SECONDS
        while len(self._called) < self.settings.num_proc:
            event = self._next_event(min(deadline, next_word))
            if isinstance(event, TaskCalled):
                self._take(event.agent)
            elif isinstance(event, SparkEnded):
                raise explained(event.error) from event.error
            elif isinstance(event, Interrupted):
                raise JobInterrupted(event.number)
            now = time.monotonic()
            if now >= deadline:
                raise TimeoutException(too_few(len(self._called), self.settings.num_proc, self.settings))
            if now >= next_word:
                next_word = now + _NEXT_WORD_SECONDS
                self.say(f"{_progress(len(self._called), self.settings.num_proc)}; waiting for the others")

    def _take(self, agent: AgentSocket) -> None:
        """One agent for each task; a further attempt of Spark at a task waits until the job is over."""
        task = TaskFacts.from_facts(agent.facts).task
        before = self._called.get(task)
        if before is not None:
            self._spares.append(before)
        self._called[task] = agent

    # ---------------------------------------------------------------------------------- starting ranks

    def _start_ranks(self, secret: bytes) -> None:
        assert self.store is not None
        settings = self.settings
        facts = {task: TaskFacts.from_facts(agent.facts) for task, agent in self._called.items()}
        tasks = in_rank_order(list(facts.values()))
        slots = slots_of(tasks)
        # To the supervisor every task is a host of its own: one can be lost without its neighbours.
        self.slots = [replace(slot, hostname=shown(task)) for slot, task in zip(slots, tasks)]
        for task, slot in zip(tasks, slots):
            runner = RemoteHost(
                shown(task),
                self._called[task.task],
                self._output.feed,
                self._put,
                settings.env,
                settings.network_timeout,
            )
            self._runners[shown(task)] = runner
            runner.open()
            env = worker_env(settings.env, slot, task.address, self.store.port, secret, settings.nics)
            runner.start(WorkerSpec(slot.rank, **in_task(task, settings.command, env)))
        hosts = len({task.host for task in tasks})
        self.say(f"{len(tasks)} ranks on {hosts} {'host' if hosts == 1 else 'hosts'}", level=2)

    def _next_event(self, wake_at: Optional[float]) -> Union[Event, Interrupted, None]:
        event: Any = super()._next_event(wake_at)
        if not self._runners:
            return event  # type: ignore[no-any-return]
        if isinstance(event, TaskCalled):  # another attempt at a task, which Spark must not see succeed
            self._spares.append(event.agent)
            return None
        # When Spark has given up, the connections of its tasks say so for each rank.
        return None if isinstance(event, SparkEnded) else event

    def _supervise(self) -> None:
        super()._supervise()
        self._clean = True

    def _let_go(self, patience: float) -> None:
        if self._listener is not None:
            self._listener.close()
        super()._let_go(patience)
        for agent in [*self._spares, *self._called.values()]:
            agent.close()
        self._end_tasks(self._clean)


def in_task(task: TaskFacts, command: List[str], env: Dict[str, str]) -> Dict[str, Any]:
    """What to start in a task: the command, environment and folder of a WorkerSpec.

    Args:
        command: ["-m", "horovod.runner.run_task"] gets the task's Python in front; a program's does not.
        env: of the rank.
    """
    own = command[0].startswith("-")
    more = {DEVICES: json.dumps(task.devices), "HOROVOD_SPARK_WORK_DIR": task.folder}
    return {
        "command": [task.python, *command] if own else command,
        "env": {**env, **more},
        "cwd": task.folder,
    }


def too_few(started: int, wanted: int, settings: JobSettings) -> str:
    """What to say when not all tasks have started in time."""
    return (
        "Timed out waiting for Spark tasks to start. Please check that you have enough resources to run "
        "all Horovod processes. Each Horovod process runs in a Spark task. You may need to increase the "
        "start_timeout parameter to a larger value if your Spark resources are allocated on-demand. "
        f"{_progress(started, wanted)}: there was room for no more. "
        f"Timeout after {settings.start_timeout:g} seconds."
    )


def _progress(started: int, wanted: int) -> str:
    return f"{started} of {wanted} Spark tasks have started"
