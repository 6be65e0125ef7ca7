# SPDX-License-Identifier: Apache-2.0
"""An elastic job of which only the supervisor is real: tests tell it what happens."""

from __future__ import annotations

from typing import Dict, List

from horovod.rendezvous.store_service import Event as StoreEvent
from horovod.runner.elastic import actions as do
from horovod.runner.elastic.hosts import KnownHosts
from horovod.runner.elastic.limits import Limits
from horovod.runner.elastic.supervision import ElasticSupervisor
from horovod.runner.host_runner import WorkerExited


class Story:
    """A job whose hosts and processes are imagined; does what the supervisor says, as the driver would."""

    def __init__(self, hosts: Dict[str, int], np=2, min_np=1, cooldown=None, **limits):
        self.now = 0.0
        self.tails: Dict[int, List[str]] = {}
        allowed = Limits(np, min_np, **limits)
        known = KnownHosts(cooldown, chance=lambda: 0.5)
        self.job = ElasticSupervisor(allowed, known, 0.0, lambda n: self.tails.get(n, []))
        self.limits = allowed
        self.alive: Dict[int, do.StartWorker] = {}
        self.asked: Dict[str, None] = {}
        self.worlds: List[do.Assign] = []
        self.notified: List[do.Notify] = []
        self.said: List[do.Say] = []
        self.dismissed: Dict[str, str] = {}
        self.open = set()
        self.with_state = set()
        self.found(hosts)

    # ---- what the driver does

    def obey(self):
        ended = []
        for action in self.job.actions():
            if isinstance(action, do.OpenHost):
                assert action.host not in self.open
                self.open.add(action.host)
            elif isinstance(action, do.CloseHost):
                self.open.remove(action.host)
                for number in [n for n, one in self.alive.items() if one.host == action.host]:
                    del self.alive[number]
            elif isinstance(action, do.StartWorker):
                assert action.host in self.open
                places = [(one.host, one.slot) for one in self.alive.values()]
                assert (action.host, action.slot) not in places, "two processes in one slot"
                self.alive[action.number] = action
            elif isinstance(action, do.EndWorker):
                ended.append(action.number)
            elif isinstance(action, do.Assign):
                self.check_world(action)
                self.worlds.append(action)
                self.asked.clear()
            elif isinstance(action, do.Notify):
                assert action.generation == self.job.generation
                assert action.name == self.worlds[-1].ordered[0].name, "only rank 0 is told"
                self.notified.append(action)
            elif isinstance(action, do.Dismiss):
                self.dismissed[action.name] = action.reason
            elif isinstance(action, do.Say):
                self.said.append(action)
        for number in ended:  # later: what comes of it must not overtake what is done here
            if number in self.alive:
                self.exits(number, 143)

    def check_world(self, world):
        names = [one.name for one in world.ordered]
        assert len(set(names)) == len(names) >= 1
        assert set(names) <= set(self.asked), "somebody is given a place who does not ask for one"
        assert self.limits.max_np is None or len(names) <= self.limits.max_np
        if self.with_state & {one.name for one in self.alive.values()}:
            assert names[0] in self.with_state, "rank 0 must have the state"
        before = {one.name: r for r, one in enumerate(self.worlds[-1].ordered)} if self.worlds else {}
        for rank, name in enumerate(names):
            old = before.get(name)
            if old is not None and old < len(names) and old != rank:
                assert rank == 0 or old == 0, f"rank {old} became {rank} without need"

    # ---- what happens

    def found(self, hosts):
        self.job.hosts_found(hosts, self.now)
        self.obey()

    def number(self, name):
        return next((n for n, one in self.alive.items() if one.name == name), None)

    def asks(self, *names):
        for name in names:
            self.asked[name] = None
            self.job.handle(StoreEvent("waiting", self.job.generation, name), self.now)
            self.obey()

    def all_start(self):
        """Everybody who is alive and in no world asks for a place."""
        inside = {one.name for one in self.worlds[-1].ordered} if self.worlds else set()
        self.asks(*[one.name for one in list(self.alive.values()) if one.name not in inside])

    def whole(self):
        """The newest world has formed and got its state."""
        self.job.handle(StoreEvent("complete", self.job.generation), self.now)
        self.obey()
        for one in self.worlds[-1].ordered:
            self.with_state.add(one.name)
            facts = {"generation": self.job.generation, "commits": len(self.worlds)}
            self.job.told("state", one.name, facts, self.now)
            self.obey()

    def started(self):
        self.all_start()
        self.whole()
        return self

    def exits(self, number, code, tail=()):
        host = self.alive.pop(number).host
        self.tails[number] = list(tail)
        self.job.handle(WorkerExited(host, number, code), self.now)
        self.obey()

    def rank(self, rank):
        """The number of the process that has this rank."""
        return self.number(self.worlds[-1].ordered[rank].name)

    def members(self):
        names = {one.name for one in self.alive.values()}
        return [one.name for one in self.worlds[-1].ordered if one.name in names]

    def may_be_whole(self):
        """All of the newest world live, and none of them has left it for another."""
        names = [one.name for one in self.worlds[-1].ordered]
        return self.members() == names and not any(name in self.asked for name in names)

    def passes(self, seconds):
        end = self.now + seconds
        while True:
            wake = self.job.wake_at(self.now)
            self.now = end if wake is None or wake > end else wake
            self.job.tick(self.now)
            self.obey()
            if self.now >= end:
                return

    def texts(self):
        return [one.text for one in self.said]

    def sizes(self):
        return [len(world.ordered) for world in self.worlds]
