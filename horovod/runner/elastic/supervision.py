# SPDX-License-Identifier: Apache-2.0
"""What to do about what happens to an elastic job.

    events, the time -> Situation (what is known) -> decisions -> actions

Pure: nothing here waits, starts or asks anything, so that tests can tell it any story.

- Newcomers are started at once; the world re-forms when it is time to (forming.py).
- The job ends when all have finished, or cannot go on (endings.py).
"""

from __future__ import annotations

from typing import Any, Callable, List, Mapping, Optional, Tuple, Union

from horovod.rendezvous.store_service import Event as StoreEvent
from horovod.runner.elastic import endings, forming, staffing
from horovod.runner.elastic.actions import (
    Action,
    Assign,
    CloseHost,
    Dismiss,
    EndWorker,
    Notify,
    OpenHost,
    Say,
    StartWorker,
)
from horovod.runner.elastic.hosts import KnownHosts
from horovod.runner.elastic.limits import Limits
from horovod.runner.elastic.placement import rank_order
from horovod.runner.elastic.situation import Situation
from horovod.runner.elastic.workers import WAITING, Worker
from horovod.runner.host_runner import Event, HostLost, HostReady, HostUnreachable, WorkerExited
from horovod.runner.supervision import Interrupted, JobInterrupted

# How long a worker that was told to go may take for its last words.
_LEAVE_SECONDS = 30.0
# A slot whose worker was asked to end (SIGTERM) from outside is probably about to go.
_REST_SECONDS = 60.0


class ElasticSupervisor:
    """Follows an elastic job.

    Args:
        now: the time, on any clock that the other calls use too.
        tail: the last lines that a worker (by number) printed.

    Attributes:
        over: whether the job has ended, or must be ended.
        error: what ended it; None while it runs and after success.
    """

    def __init__(
        self, limits: Limits, hosts: KnownHosts, now: float, tail: Callable[[int], List[str]]
    ) -> None:
        self.over = False
        self.error: Optional[RuntimeError] = None
        self._actions: List[Action] = []
        self._job = Situation(limits, hosts, now, tail, lambda news: self._actions.append(news))
        self._patience = endings.Patience(now)

    @property
    def generation(self) -> int:
        """The number of the newest one, 0 before the first."""
        return self._job.generation

    @property
    def finished(self) -> List[Tuple[int, str]]:
        """(rank, name) of the workers that ended well."""
        return self._job.finished

    # -------------------------------------------------------------------------------------- inputs

    def hosts_found(self, found: Mapping[str, int], now: float) -> None:
        """Takes what discovery says."""
        self._job.listed(found)
        self._decide(now)

    def handle(self, event: Union[Event, StoreEvent, Interrupted], now: float) -> None:
        """Takes what has happened."""
        if self.over:
            return
        job = self._job
        if isinstance(event, WorkerExited):
            if job.exited(event, now):
                self._release_newcomers(now)
        elif isinstance(event, HostReady):
            job.ready(event.host)
        elif isinstance(event, (HostLost, HostUnreachable)):
            job.host_gone(event.host, event.why, now, reached=isinstance(event, HostLost))
        elif isinstance(event, Interrupted):
            self._stop(JobInterrupted(event.number))
        elif event.kind == "waiting":
            job.asks(event.worker, now)
        elif event.kind == "complete" and event.generation == job.generation:
            job.whole(now)
        self._decide(now)

    def told(self, kind: str, name: str, facts: Mapping[str, Any], now: float) -> None:
        """Takes what a worker said: "state" (it has the state now) or "leave" (it was asked to end)."""
        worker = self._job.workers.named(name)
        if self.over or worker is None:
            return
        if kind == "state":
            self._job.has_state(worker, facts)
        elif kind == "leave" and not worker.leaving:
            self._job.rests[worker.host, worker.slot] = now + _REST_SECONDS
            self._let_go(worker, f"{worker} was asked to end", now)
        self._decide(now)

    def silences(self, seconds: Mapping[str, float], now: float) -> None:
        """Takes for how long nothing has been heard of each host."""
        self._job.silences(seconds, now)
        self._decide(now)

    def tick(self, now: float) -> None:
        """Takes the time; needed at wake_at() at the latest."""
        self._decide(now)

    def wake_at(self, now: float) -> Optional[float]:
        """When tick() has something to do; None: only events can change anything."""
        job = self._job
        times = [
            job.hosts.wake_at(now), *job.rests.values(), *(one.end_at for one in job.workers),
            *forming.times(job), self._patience.ends_at(job),
        ]  # fmt: skip
        ahead = [one for one in times if one is not None and one > now]
        return min(ahead) if ahead else None

    def actions(self) -> List[Action]:
        """What to do, since the last call."""
        actions, self._actions = self._actions, []
        return actions

    # ----------------------------------------------------------------------------------- decisions

    def _decide(self, now: float) -> None:
        for step in (
            self._close_empty_hosts, self._check_end, self._release_surplus, self._start_missing,
            self._ask_for_a_pause, self._form, self._end_late_leavers, self._check_patience,
        ):  # fmt: skip
            if self.over:
                return
            step(now)

    def _close_empty_hosts(self, now: float) -> None:
        """Those that are lost, left alone, or not listed any more."""
        job = self._job
        wanted = dict(job.hosts.usable(now))
        for host in [host for host in job.open if host not in wanted and not job.workers.on(host)]:
            del job.open[host]
            self._actions.append(CloseHost(host))

    def _check_end(self, now: float) -> None:
        job = self._job
        if job.finishing and job.trouble is None:
            if not len(job.workers):
                self._stop(endings.failed_at_last(job))
            return
        error = job.trouble or endings.without_state(job)
        if error is not None:
            self._stop(error)

    def _release_surplus(self, now: float) -> None:
        """Lets workers go whose slots are not there any more, if the job can go on without them."""
        job = self._job
        if job.finishing:
            return
        usable = job.hosts.usable(now)
        for worker in staffing.surplus(job.workers, usable, job.limits.min_np, job.state_exists):
            self._let_go(worker, f"{worker.host} has been removed from the job", now)

    def _release_newcomers(self, now: float) -> None:
        for worker in self._job.workers.staying():
            if worker.generation == 0 or (worker.stage == WAITING and not worker.veteran):
                self._let_go(worker, "the job is finishing", now)

    def _let_go(self, worker: Worker, reason: str, now: float) -> None:
        worker.leaving, worker.end_at = reason, now + _LEAVE_SECONDS
        if worker.generation == 0:
            self._actions.append(EndWorker(worker.number, worker.host))
        else:
            self._actions.append(Dismiss(worker.name, reason))

    def _start_missing(self, now: float) -> None:
        job = self._job
        limits, usable = job.limits, job.hosts.usable(now)
        capacity = sum(slots for _, slots in usable)
        if job.finishing or (job.started_at is None and capacity < limits.num_proc):
            return
        if job.generation and job.progress.used_up and len(job.workers.staying()) >= limits.min_np:
            return  # they could not join
        for host, slot in staffing.vacancies(job.workers, usable, limits.max_np, job.rests, now):
            if host not in job.open:
                job.open[host] = None
                self._actions.append(OpenHost(host))
            worker = job.started(host, slot, now)
            self._actions.append(StartWorker(worker.number, worker.name, host, slot))

    def _ask_for_a_pause(self, now: float) -> None:
        """Tells rank 0 that there are newcomers, or that workers must go: all pause at their next commit."""
        job = self._job
        change = forming.change(job, now)
        inside = (one for one in job.workers if one.generation == job.generation)
        first = next((one for one in inside if one.rank == 0), None)
        if first is not None and change & ~job.notified:
            job.notified |= change
            self._actions.append(Notify(first.name, job.generation, job.notified))

    def _form(self, now: float) -> None:
        """Opens the next generation if everybody who should be in it asks for a place."""
        job = self._job
        missing, limits = forming.absent(job), job.limits
        if not forming.is_due(job, missing, now):
            return
        if job.generation and not forming.only_grows(job, missing):
            trouble = job.progress.re_forms()
            if trouble is not None:
                self._stop(RuntimeError(trouble))
                return
            if job.progress.used_up:
                text = f"this was the last of {limits.reset_limit} resets: nobody joins any more"
                self._actions.append(Say("reset limit", text))
        for one in missing if job.generation else ():
            one.has_state = False
            text = f"going on without {one}, which does not come"
            self._actions.append(Say("late", text, dict(host=one.host, rank=one.rank)))
        usable = job.hosts.usable(now)
        chosen = staffing.chosen(job.workers.waiting(), job.workers, usable, limits.max_np)
        order = {host: place for place, host in enumerate(job.hosts.names())}
        chosen.sort(key=lambda one: (order.get(one.host, len(order)), one.slot))
        by_name = {one.name: one for one in chosen}
        ordered = rank_order([one.candidate(job.generation) for one in chosen])
        job.assigned([by_name[one.name] for one in ordered], now)
        self._actions.append(Assign(job.generation, ordered))

    def _end_late_leavers(self, now: float) -> None:
        for worker in self._job.workers:
            if worker.end_at is not None and now >= worker.end_at:
                worker.end_at = None
                self._actions.append(EndWorker(worker.number, worker.host))

    def _check_patience(self, now: float) -> None:
        error = self._patience.ends(self._job, now)
        if error is not None:
            self._stop(error)

    def _stop(self, error: Optional[RuntimeError]) -> None:
        if not self.over:
            self.over, self.error = True, error
