# SPDX-License-Identifier: Apache-2.0
"""What is known of an elastic job, and what the events say about it. Pure: what to do is decided elsewhere
(supervision.py), which reads this and notes here what it has done.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from horovod.runner.elastic.actions import Lost, Say
from horovod.runner.elastic.failures import Places, place_of
from horovod.runner.elastic.hosts import FOREVER, KnownHosts
from horovod.runner.elastic.limits import Limits
from horovod.runner.elastic.progress import Progress
from horovod.runner.elastic.workers import MEMBER, STARTING, WAITING, Worker, Workers
from horovod.runner.host_runner import WorkerExited
from horovod.runner.supervision import JobFailed, WorkerFailure, culprit, exit_text

KILLED = 128 + 9
# Processes of a host that end before they ask for a place, one after another, until the host is given up.
_START_FAILURES = 3


class Situation:
    """Events come to its methods; the supervisor reads it, and notes in it what it has done itself.

    Args:
        now: the time, on any clock that the other calls use too.
        tail: the last lines that a worker (by number) printed.
        tell: takes what people (Say) and the store (Lost) should hear of what has happened.

    Attributes:
        limits, hosts, progress: what is allowed, where workers can be, whether the job gets anywhere.
        workers: the processes that live.
        open: hosts that were made ready for workers.
        rests: slots that are left alone until a time.
        generation: the number of the newest one, 0 before the first.
        finished: (rank, name) of the workers that ended well.
        failures: since the world last was whole.
        unforgiven: what a job that finishes has not got over: failures in its newest world, and all since a
            worker has finished. Before there is a world, all.
        started_at: when the first workers were started.
        broken_since: since when there is no whole world; None if there is one.
        cause: what broke it, e.g. "lost host b", or "".
        notified: what rank 0 of the newest world was told (HostUpdateResult).
        ever_whole: all members of some world had reached it.
        state_exists: some worker has got the state of the training.
        trouble: why the job must end, as an event has shown.
    """

    def __init__(
        self,
        limits: Limits,
        hosts: KnownHosts,
        now: float,
        tail: Callable[[int], List[str]],
        tell: Callable[[Union[Say, Lost]], None],
    ) -> None:
        self.limits, self.hosts, self._tail, self._tell = limits, hosts, tail, tell
        self.workers = Workers()
        self.open: Dict[str, None] = {}
        self.rests: Dict[Tuple[str, int], float] = {}
        self.generation = self.notified = 0
        self.finished: List[Tuple[int, str]] = []
        self.failures: List[WorkerFailure] = []
        self.unforgiven: List[WorkerFailure] = []
        self.started_at: Optional[float] = None
        self.broken_since: Optional[float] = now
        self.cause = ""
        self.ever_whole = self.state_exists = False
        self.trouble: Optional[RuntimeError] = None
        self.progress = Progress(limits.reset_limit)
        self._places = Places()
        self._start_failures: Counter[str] = Counter()

    @property
    def finishing(self) -> bool:
        """Whether a worker has finished: the others will, too, and nobody joins any more."""
        return bool(self.finished)

    def members(self) -> List[Worker]:
        """Those of the newest world who stay."""
        return self.workers.members(self.generation)

    def newcomers(self) -> List[Worker]:
        """Those who ask for a place and have none in the newest world."""
        return [one for one in self.workers.waiting() if one.generation != self.generation]

    # ------------------------------------------------------------------------------- what happens

    def listed(self, found: Mapping[str, int]) -> None:
        """Discovery has found these hosts, with so many slots."""
        before = self.hosts.slots()
        self.hosts.listed(found)
        after = self.hosts.slots()
        for host in [*after, *(host for host in before if host not in after)]:
            old, new = before.get(host, 0), after.get(host, 0)
            if old != new:
                text = f"host {host} found with {_count(new, 'slot')}" if not old else f"host {host} is gone"
                text = f"host {host} has {_count(new, 'slot')} now instead of {old}" if old and new else text
                self._say("hosts", text, host=host, slots=new, level=0 if self.started_at else 1)

    def ready(self, host: str) -> None:
        """A host can run workers."""
        self._say("host ready", f"host {host} is ready", host=host, level=1)

    def asks(self, name: str, now: float) -> None:
        """A worker asks for a place."""
        worker = self.workers.named(name)
        if worker is None:
            return
        if worker.stage == STARTING:
            self._start_failures[worker.host] = 0
        elif worker.stage == MEMBER and worker.generation == self.generation:
            self._broken("", now)
        worker.enter(WAITING, now)

    def whole(self, now: float) -> None:
        """All members of the newest world have reached it."""
        members = self.members()
        took = 0.0 if self.broken_since is None else now - self.broken_since
        what = "re-formed" if self.ever_whole else "started"
        newcomers = sum(1 for one in members if not one.veteran)
        cause = self.cause or (f"{newcomers} joined" if newcomers and self.ever_whole else "")
        text = f"{what} with {_count(len(members), 'rank')} in {took * 1000:.0f} ms"
        self._say(
            "formed", f"{text} ({cause})" if cause and self.ever_whole else text,
            ranks=len(members), generation=self.generation, milliseconds=round(took * 1000),
            hosts=[worker.host for worker in sorted(members, key=lambda one: one.rank)],
        )  # fmt: skip
        for worker in members:
            worker.veteran = True
        self.ever_whole = True
        self.broken_since, self.cause = None, ""
        self.failures.clear()

    def has_state(self, worker: Worker, facts: Mapping[str, Any]) -> None:
        """A worker has the state of the training now."""
        worker.has_state = self.state_exists = True
        if worker.rank != 0 or facts.get("generation") != self.generation:
            return
        commits, left = int(facts.get("commits", 0)), facts.get("samples_left")
        text = f"state from rank 0 on {worker.host}, after {commits} commits"
        text += f", {left} samples left in this epoch" if left is not None else ""
        self._say("state", text, rank=0, host=worker.host, commits=commits, samples_left=left)
        trouble = self.progress.synchronised(commits)
        if trouble is not None:
            self.trouble = RuntimeError(trouble)

    def exited(self, event: WorkerExited, now: float) -> bool:
        """A worker's process has ended; whether it had finished."""
        worker = self.workers.pop(event.worker)
        if worker is None:
            return False
        cause = f"{worker} ended with exit code {exit_text(event.code)}"
        self._tell(Lost(worker.name, cause))
        facts: Dict[str, Any] = dict(
            rank=worker.rank, host=worker.host, slot=worker.slot, exit_code=event.code
        )
        if worker.leaving:
            self._say("left", f"{worker} has left: {worker.leaving}", **facts)
        elif event.code == 0:
            self.finished.append((worker.rank, worker.name))
            self._say("finished", f"{worker} has finished", **facts, level=1)
            return True
        else:
            tail = self._tail(event.worker)
            failure = WorkerFailure(worker.rank, worker.host, event.code, tail, worker.name)
            last = failure.tail[-1] if failure.tail and event.code < 128 else ""
            self._say("lost", f"lost {cause}" + (f": {last}" if last else ""), **facts, last_line=last)
            self._failed(worker, failure, now, cause)
        return False

    def _failed(self, worker: Worker, failure: WorkerFailure, now: float, cause: str) -> None:
        self._note(failure, [worker])
        if worker.generation and worker.generation == self.generation:
            self._broken(cause, now)
        place = None if self.finishing else place_of(failure)
        if place is not None:
            self._places.note(place, worker.host, now)
            others = [host for host, _ in self.hosts.usable(now) if host != worker.host]
            verdict = self._places.verdict(place, others)
            if verdict == "script":
                self._say("script error", f"failed again at the same place: {place}", place=place)
                self.trouble = JobFailed(culprit(self.failures))
            elif verdict == "host":
                self._blacklist(worker.host, f"workers fail there again and again: {place}", now)
        elif worker.stage == STARTING:
            self._start_failures[worker.host] += 1
            if self._start_failures[worker.host] >= _START_FAILURES:
                self._blacklist(worker.host, "its workers end before they join", now)

    def _note(self, failure: WorkerFailure, lost: Sequence[Worker]) -> None:
        """A failure that has cost these workers."""
        self.failures.append(failure)
        self.progress.failed()
        needed = (one for one in lost if not one.leaving)
        whatever = self.finishing or not self.ever_whole  # of later newcomers the job has no need
        if any(whatever or one.generation == self.generation for one in needed):
            self.unforgiven.append(failure)

    def silences(self, seconds: Mapping[str, float], now: float) -> None:
        """Nothing has been heard of hosts for so long."""
        limit = self.limits.network_timeout
        if self.broken_since is not None and self.ever_whole:
            limit /= 3  # the others have noticed already that somebody is missing
        for host in [host for host, silence in seconds.items() if silence >= limit]:
            why = f"no word from it for {seconds[host]:.0f} s: its network was cut or it went down"
            self.host_gone(host, why, now, reached=True)

    def host_gone(self, host: str, why: str, now: float, reached: bool) -> None:
        """A host was lost with all that ran there, or could not be reached at all."""
        if host not in self.open:
            return
        lost = self.workers.on(host)
        what = "lost host" if reached else "could not reach host"
        names = ", ".join(one.title() for one in lost)
        self._say("host lost", f"{what} {host} ({names}): {why}", host=host, why=why)
        for worker in lost:
            self.workers.pop(worker.number)
            self._tell(Lost(worker.name, f"{worker} is gone with its host: {why}"))
            if worker.generation and worker.generation == self.generation:
                self._broken(f"lost host {host}", now)
        if reached and lost:
            self._note(WorkerFailure(lost[0].rank, host, KILLED, [why], lost[0].name), lost)
        if reached:
            self._blacklist(host, "", now)
        else:
            self.hosts.unreachable(host, now)

    def _blacklist(self, host: str, why: str, now: float) -> None:
        until = self.hosts.blacklist(host, now)
        if why:
            span = "" if until == FOREVER else f" for {until - now:.0f} s"
            self._say("blacklisted", f"host {host} is left alone{span}: {why}", host=host, why=why)

    def _broken(self, cause: str, now: float) -> None:
        """The world is not whole any more; the cause is "" if that is only what its members say."""
        if self.broken_since is None:
            self.broken_since = now
        self.cause = self.cause or cause

    def _say(self, kind: str, text: str, level: int = 0, **facts: Any) -> None:
        self._tell(Say(kind, text, facts, level))

    # ------------------------------------------------------------------------------ what was done

    def started(self, host: str, slot: int, now: float) -> Worker:
        """A worker is being started."""
        if self.started_at is None:
            self.started_at = self.broken_since = now
        return self.workers.add(host, slot, now)

    def assigned(self, ordered: Sequence[Worker], now: float) -> None:
        """These have places in a new generation, in the order of their ranks."""
        self.generation, self.notified = self.generation + 1, 0
        if not self.finishing:
            self.unforgiven.clear()
        for rank, worker in enumerate(ordered):
            worker.rank, worker.generation = rank, self.generation
            worker.enter(MEMBER, now)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
