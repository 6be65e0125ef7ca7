# SPDX-License-Identifier: Apache-2.0
"""What the events of an elastic job mean, and what to do about them.

Pure: events and the time come in, actions come out. Nothing here waits, starts or asks anything, so that
tests can tell it any story.

- The world re-forms when every living member of the newest generation asks for a place: because one of them
  died, which the others notice by themselves, or because rank 0 was told that hosts came or went.
- Newcomers are started at once and admitted when they ask for a place: nobody waits for their imports.
- The state of the training is in the memory of workers. The job ends when nobody is left who has it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from horovod.rendezvous.store_service import Event as StoreEvent
from horovod.runner.elastic import staffing
from horovod.runner.elastic.actions import (
    Action,
    Assign,
    CloseHost,
    Dismiss,
    EndWorker,
    Lost,
    Notify,
    OpenHost,
    Say,
    StartWorker,
)
from horovod.runner.elastic.failures import Places, place_of
from horovod.runner.elastic.hosts import FOREVER, HostUpdateResult, KnownHosts
from horovod.runner.elastic.limits import Limits
from horovod.runner.elastic.placement import rank_order
from horovod.runner.elastic.progress import Progress
from horovod.runner.elastic.workers import MEMBER, STARTING, WAITING, Worker, Workers
from horovod.runner.host_runner import Event, HostLost, HostReady, HostUnreachable, WorkerExited
from horovod.runner.supervision import (
    HostError,
    Interrupted,
    JobFailed,
    JobInterrupted,
    WorkerFailure,
    culprit,
    exit_text,
)

NO_STATE_LEFT = "No hosts from previous set remaining, unable to broadcast state."
# Workers of a host that come at about the same time are admitted together.
_TOGETHER_SECONDS = 0.5
# How long a worker that was told to go may take for its last words.
_LEAVE_SECONDS = 30.0
# A slot whose worker was asked to end (SIGTERM) from outside is probably about to go.
_REST_SECONDS = 60.0
# Processes of a host that end before they ask for a place, one after another, until the host is given up.
_START_FAILURES = 3
_KILLED = 128 + 9


class TimeoutException(RuntimeError):
    """There were not enough slots for too long."""


class ElasticSupervisor:
    """Follows an elastic job.

    Args:
        now: the time, on any clock that the other calls use too.
        tail: the last lines that a worker (by number) printed.

    Attributes:
        over: whether the job has ended, or must be ended.
        error: what ended it; None while it runs and after success.
        finished: (rank, name) of the workers that ended well.
        generation: the number of the newest one, 0 before the first.
    """

    def __init__(
        self, limits: Limits, hosts: KnownHosts, now: float, tail: Callable[[int], List[str]]
    ) -> None:
        self.over = False
        self.error: Optional[RuntimeError] = None
        self.finished: List[Tuple[int, str]] = []
        self.generation = 0
        self.workers = Workers()
        self._limits, self._hosts, self._tail = limits, hosts, tail
        self._actions: List[Action] = []
        self._open: Dict[str, None] = {}  # hosts with a runner
        self._rests: Dict[Tuple[str, int], float] = {}
        self._places = Places()
        self._start_failures: Counter[str] = Counter()
        self._failures: List[WorkerFailure] = []  # since the world last was whole
        self._started_at: Optional[float] = None  # when the first workers were started
        self._short_since: Optional[float] = now  # since when there are too few workers
        self._broken_since: Optional[float] = now  # since when there is no whole world
        self._cause = ""
        self._notified = 0
        self._ever_whole = self._state_exists = self._finishing = False
        self._progress = Progress(limits.reset_limit)

    # -------------------------------------------------------------------------------------- inputs

    def hosts_found(self, found: Mapping[str, int], now: float) -> None:
        """Takes what discovery says."""
        before = dict(self._hosts.slots())
        self._hosts.listed(found)
        after = self._hosts.slots()
        for host in [*after, *(host for host in before if host not in after)]:
            old, new = before.get(host, 0), after.get(host, 0)
            if old != new:
                text = f"host {host} found with {_slots(new)}" if not old else f"host {host} is gone"
                text = f"host {host} has {_slots(new)} now instead of {old}" if old and new else text
                self._say("hosts", text, host=host, slots=new, level=0 if self._started_at else 1)
        self._decide(now)

    def handle(self, event: Union[Event, StoreEvent, Interrupted], now: float) -> None:
        """Takes what has happened."""
        if self.over:
            return
        if isinstance(event, WorkerExited):
            self._exited(event, now)
        elif isinstance(event, HostReady):
            self._say("host ready", f"host {event.host} is ready", host=event.host, level=1)
        elif isinstance(event, (HostLost, HostUnreachable)):
            self._host_gone(event.host, event.why, now, reached=isinstance(event, HostLost))
        elif isinstance(event, Interrupted):
            self._stop(JobInterrupted(event.number))
        elif event.kind == "waiting":
            self._asks(event.worker, now)
        elif event.kind == "complete" and event.generation == self.generation:
            self._whole(now)
        self._decide(now)

    def told(self, kind: str, name: str, facts: Mapping[str, Any], now: float) -> None:
        """Takes what a worker said: "state" (it has the state now) or "leave" (it was asked to end)."""
        worker = self.workers.named(name)
        if self.over or worker is None:
            return
        if kind == "state":
            self._has_state(worker, facts)
        elif kind == "leave" and not worker.leaving:
            self._rests[worker.host, worker.slot] = now + _REST_SECONDS
            self._let_go(worker, f"{worker} was asked to end", now)
        self._decide(now)

    def silences(self, seconds: Mapping[str, float], now: float) -> None:
        """Takes for how long nothing has been heard of each host."""
        limit = self._limits.network_timeout
        if self._broken_since is not None and self._ever_whole:
            limit /= 3  # the others have noticed already that somebody is missing
        for host in [host for host, silence in seconds.items() if silence >= limit and host in self._open]:
            why = f"no word from it for {seconds[host]:.0f} s: its network was cut or it went down"
            self._host_gone(host, why, now, reached=True)
        self._decide(now)

    def tick(self, now: float) -> None:
        """Takes the time; needed at wake_at() at the latest."""
        self._decide(now)

    def wake_at(self, now: float) -> Optional[float]:
        """When tick() has something to do; None: only events can change anything."""
        limits = self._limits
        times = [self._hosts.wake_at(now), *self._rests.values(), *(one.end_at for one in self.workers)]
        if self._short_since is not None:
            times.append(self._short_since + limits.elastic_timeout)
        if self.generation == 0 and self._started_at is not None:
            times.append(self._started_at + limits.start_timeout)
        if self._broken_since is not None and self.generation:
            times.append(self._broken_since + 2 * limits.network_timeout)
        else:
            times += [one.since + _TOGETHER_SECONDS for one in self.workers.waiting()]
        ahead = [one for one in times if one is not None and one > now]
        return min(ahead) if ahead else None

    def actions(self) -> List[Action]:
        """What to do, since the last call."""
        actions, self._actions = self._actions, []
        return actions

    # ------------------------------------------------------------------------------ what it means

    def _asks(self, name: str, now: float) -> None:
        worker = self.workers.named(name)
        if worker is None:
            return
        if worker.stage == STARTING:
            self._start_failures[worker.host] = 0
        elif worker.stage == MEMBER and worker.generation == self.generation:
            self._broken("", now)
        worker.enter(WAITING, now)

    def _whole(self, now: float) -> None:
        members = self.workers.members(self.generation)
        took = 0.0 if self._broken_since is None else now - self._broken_since
        what = "re-formed" if self._ever_whole else "started"
        newcomers = sum(1 for one in members if not one.veteran)
        cause = self._cause or (f"{newcomers} joined" if newcomers and self._ever_whole else "")
        text = f"{what} with {_ranks(len(members))} in {took * 1000:.0f} ms"
        self._say(
            "formed", f"{text} ({cause})" if cause and self._ever_whole else text,
            ranks=len(members), generation=self.generation, milliseconds=round(took * 1000),
            hosts=[worker.host for worker in sorted(members, key=lambda one: one.rank)],
        )  # fmt: skip
        for worker in members:
            worker.veteran = True
        self._ever_whole = True
        self._broken_since, self._cause, self._notified = None, "", 0
        self._failures.clear()

    def _has_state(self, worker: Worker, facts: Mapping[str, Any]) -> None:
        worker.has_state = self._state_exists = True
        if worker.rank != 0 or facts.get("generation") != self.generation:
            return
        commits, left = int(facts.get("commits", 0)), facts.get("samples_left")
        text = f"state from rank 0 on {worker.host}, after {commits} commits"
        text += f", {left} samples left in this epoch" if left is not None else ""
        self._say("state", text, rank=0, host=worker.host, commits=commits, samples_left=left)
        trouble = self._progress.synchronised(commits)
        if trouble is not None:
            self._stop(RuntimeError(trouble))

    def _exited(self, event: WorkerExited, now: float) -> None:
        worker = self.workers.pop(event.worker)
        if worker is None:
            return
        cause = f"{worker} ended with exit code {exit_text(event.code)}"
        self._actions.append(Lost(worker.name, cause))
        facts: Dict[str, Any] = dict(
            rank=worker.rank, host=worker.host, slot=worker.slot, exit_code=event.code
        )
        if worker.leaving:
            self._say("left", f"{worker} has left: {worker.leaving}", **facts)
        elif event.code == 0:
            self.finished.append((worker.rank, worker.name))
            self._say("finished", f"{worker} has finished", **facts, level=1)
            self._finish_soon(now)
        else:
            tail = self._tail(event.worker)
            failure = WorkerFailure(max(worker.rank, 0), worker.host, event.code, tail, worker.name)
            last = failure.tail[-1] if failure.tail and event.code < 128 else ""
            self._say("lost", f"lost {cause}" + (f": {last}" if last else ""), **facts, last_line=last)
            self._failed(worker, failure, now, cause)

    def _failed(self, worker: Worker, failure: WorkerFailure, now: float, cause: str) -> None:
        self._failures.append(failure)
        self._progress.failed()
        if worker.generation and worker.generation == self.generation:
            self._broken(cause, now)
        place = None if self._finishing else place_of(failure)
        if place is not None:
            self._places.note(place, worker.host, now)
            others = [host for host, _ in self._hosts.usable(now) if host != worker.host]
            verdict = self._places.verdict(place, others)
            if verdict == "script":
                self._say("script error", f"failed again at the same place: {place}", place=place)
                self._stop(JobFailed(culprit(self._failures)))
            elif verdict == "host":
                self._blacklist(worker.host, f"workers fail there again and again: {place}", now)
        elif worker.stage == STARTING:
            self._start_failures[worker.host] += 1
            if self._start_failures[worker.host] >= _START_FAILURES:
                self._blacklist(worker.host, "its workers end before they join", now)

    def _host_gone(self, host: str, why: str, now: float, reached: bool) -> None:
        if host not in self._open:
            return
        lost = self.workers.on(host)
        what = "lost host" if reached else "could not reach host"
        names = ", ".join(one.title() for one in lost)
        self._say("host lost", f"{what} {host} ({names}): {why}", host=host, why=why)
        for worker in lost:
            self.workers.pop(worker.number)
            self._actions.append(Lost(worker.name, f"{worker} is gone with its host: {why}"))
            if worker.generation and worker.generation == self.generation:
                self._broken(f"lost host {host}", now)
        if reached and lost:
            self._failures.append(WorkerFailure(max(lost[0].rank, 0), host, _KILLED, [why]))
            self._progress.failed()
        self._close(host)
        if reached:
            self._blacklist(host, "", now)
        else:
            self._hosts.unreachable(host, now)

    def _blacklist(self, host: str, why: str, now: float) -> None:
        until = self._hosts.blacklist(host, now)
        if why:
            span = "" if until == FOREVER else f" for {until - now:.0f} s"
            self._say("blacklisted", f"host {host} is left alone{span}: {why}", host=host, why=why)

    def _broken(self, cause: str, now: float) -> None:
        """The world is not whole any more; the cause is "" if that is only what its members say."""
        if self._broken_since is None:
            self._broken_since = now
        self._cause = self._cause or cause

    def _finish_soon(self, now: float) -> None:
        """A worker has finished: the others will, too. Nobody joins any more."""
        self._finishing = True
        for worker in self.workers.staying():
            if worker.generation == 0 or (worker.stage == WAITING and not worker.veteran):
                self._let_go(worker, "the job is finishing", now)

    # ------------------------------------------------------------------------------- what to do

    def _decide(self, now: float) -> None:
        for step in (
            self._check_end, self._release_surplus, self._start_missing, self._ask_for_a_pause, self._form,
            self._end_late_leavers, self._close_empty_hosts, self._check_patience,
        ):  # fmt: skip
            if self.over:
                return
            step(now)

    def _check_end(self, now: float) -> None:
        if self._finishing:
            if not len(self.workers):
                hard = [one for one in self._failures if one.code < 128 and not one.is_echo()]
                self._stop(JobFailed(hard[0]) if hard else None)
            return
        alive = self.workers.staying()
        if self._state_exists:
            # One that is still in the world may have got the state a moment ago.
            hope = any(one.has_state or (one.veteran and one.stage == MEMBER) for one in alive)
        else:
            hope = not self._ever_whole or any(one.veteran for one in alive)
        if not hope:
            first = culprit(self._failures) if self._failures else None
            if first is not None and first.code != _KILLED:
                self._stop(JobFailed(first))
            else:
                why = f" Last: {self._cause}." if self._cause else ""
                self._stop(HostError(f"{NO_STATE_LEFT}{why} Every worker that had it is gone"))

    def _release_surplus(self, now: float) -> None:
        """Lets workers go whose slots are not there any more, if the job can go on without them."""
        if self._finishing:
            return
        usable = self._hosts.usable(now)
        for worker in staffing.surplus(self.workers, usable, self._limits.min_np, self._state_exists):
            self._let_go(worker, f"{worker.host} has been removed from the job", now)

    def _let_go(self, worker: Worker, reason: str, now: float) -> None:
        worker.leaving = reason
        worker.end_at = now + _LEAVE_SECONDS
        if worker.generation == 0:
            self._actions.append(EndWorker(worker.number, worker.host))
        else:
            self._actions.append(Dismiss(worker.name, reason))

    def _start_missing(self, now: float) -> None:
        limits, usable = self._limits, self._hosts.usable(now)
        capacity = sum(slots for _, slots in usable)
        if self._finishing or (self._started_at is None and capacity < limits.num_proc):
            return
        for host, slot in staffing.vacancies(self.workers, usable, limits.max_np, self._rests, now):
            if host not in self._open:
                self._open[host] = None
                self._actions.append(OpenHost(host))
            worker = self.workers.add(host, slot, now)
            self._actions.append(StartWorker(worker.number, worker.name, host, slot))
            if self._started_at is None:
                self._started_at = self._broken_since = now

    def _ask_for_a_pause(self, now: float) -> None:
        """Tells rank 0 that there are newcomers, or that workers must go: all pause at their next commit."""
        if self._broken_since is not None or self._finishing or not self.generation:
            return
        change = 0
        inside = [one for one in self.workers if one.generation == self.generation]
        if any(one.leaving for one in inside):
            change |= HostUpdateResult.removed
        newcomers = [one for one in self.workers.waiting() if one.generation != self.generation]
        if newcomers:
            soon = any(one.stage == STARTING and one.host in {n.host for n in newcomers}
                       for one in self.workers.staying())  # fmt: skip
            if not soon or now >= min(one.since for one in newcomers) + _TOGETHER_SECONDS:
                change |= HostUpdateResult.added
        first = next((one for one in inside if one.rank == 0), None)
        if first is not None and change & ~self._notified:
            self._notified |= change
            self._actions.append(Notify(first.name, self.generation, self._notified))

    def _form(self, now: float) -> None:
        """Opens the next generation if everybody who should be in it asks for a place."""
        waiting = self.workers.waiting()
        members = self.workers.members(self.generation)
        if not waiting or (members and all(one.stage == MEMBER for one in members)):
            return
        limits = self._limits
        if self.generation == 0:
            absent = [one for one in self.workers.staying() if one.stage == STARTING]
            patience = (self._started_at or now) + limits.start_timeout
        else:
            absent = [one for one in members if one.stage == MEMBER]
            patience = (
                now if self._broken_since is None else self._broken_since
            ) + 2 * limits.network_timeout
        fewest = 1 if self._finishing else limits.min_np
        if (absent and now < patience) or len(waiting) < fewest:
            return
        if self._state_exists and not any(one.has_state for one in waiting):
            return  # whoever has it will come, or the job ends
        trouble = self._progress.re_forms() if self.generation else None
        if trouble is not None:
            self._stop(RuntimeError(trouble))
            return
        for one in absent:
            if self.generation:
                one.has_state = False
                self._say(
                    "late", f"going on without {one}, which does not come", host=one.host, rank=one.rank
                )
        usable = self._hosts.usable(now)
        self._assign(staffing.chosen(waiting, self.workers, usable, limits.max_np), now)

    def _assign(self, waiting: List[Worker], now: float) -> None:
        order = {host: place for place, host in enumerate(self._hosts.names())}
        waiting.sort(key=lambda one: (order.get(one.host, len(order)), one.slot))
        by_name = {one.name: one for one in waiting}
        ordered = rank_order([one.candidate(self.generation) for one in waiting])
        self.generation += 1
        for rank, candidate in enumerate(ordered):
            worker = by_name[candidate.name]
            worker.rank, worker.generation = rank, self.generation
            worker.enter(MEMBER, now)
        self._actions.append(Assign(self.generation, ordered))

    def _end_late_leavers(self, now: float) -> None:
        for worker in self.workers:
            if worker.end_at is not None and now >= worker.end_at:
                worker.end_at = None
                self._actions.append(EndWorker(worker.number, worker.host))

    def _close_empty_hosts(self, now: float) -> None:
        wanted = dict(self._hosts.usable(now))
        for host in [host for host in self._open if host not in wanted and not self.workers.on(host)]:
            self._close(host)

    def _close(self, host: str) -> None:
        del self._open[host]
        self._actions.append(CloseHost(host))

    def _check_patience(self, now: float) -> None:
        """Ends the job if there are too few workers for too long."""
        limits = self._limits
        enough = limits.min_np if self._started_at is not None else limits.num_proc
        ready = len(self.workers.members(self.generation)) + len(
            [one for one in self.workers.waiting() if one.generation != self.generation]
        )
        if self._finishing or ready >= enough:
            self._short_since = None
            return
        if self._short_since is None:
            self._short_since = now
        capacity, hope = self._hosts.capacity(now), self._hosts.wake_at(now)
        for_good = limits.fixed_hosts and capacity < enough and hope is None
        if for_good or now >= self._short_since + limits.elastic_timeout:
            first = next((one for one in self._failures if not one.is_echo()), None)
            if for_good and first is not None:
                self._stop(JobFailed(first))
                return
            after = 0 if for_good else limits.elastic_timeout
            self._stop(TimeoutException(
                "Timed out waiting for minimum number of slots to become available. Please check that you "
                f"have enough resources to run at least {enough} Horovod processes. "
                f"{capacity} slots are usable, {ready} processes ready. Timeout after {after:g} seconds."
            ))  # fmt: skip

    def _say(self, kind: str, text: str, level: int = 0, **facts: Any) -> None:
        self._actions.append(Say(kind, text, facts, level))

    def _stop(self, error: Optional[RuntimeError]) -> None:
        if not self.over:
            self.over, self.error = True, error


def _slots(count: int) -> str:
    return f"{count} slot" if count == 1 else f"{count} slots"


def _ranks(count: int) -> str:
    return f"{count} rank" if count == 1 else f"{count} ranks"
