# SPDX-License-Identifier: Apache-2.0
"""What an elastic job does about what happens: stories, and random ones in which nothing may be forgotten."""

from __future__ import annotations

from typing import Dict, List

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horovod.rendezvous.store_service import Event as StoreEvent
from horovod.runner.elastic import actions as do
from horovod.runner.elastic.hosts import HostUpdateResult, KnownHosts
from horovod.runner.elastic.limits import Limits
from horovod.runner.elastic.supervision import ElasticSupervisor, TimeoutException
from horovod.runner.host_runner import HostLost, HostUnreachable, WorkerExited
from horovod.runner.supervision import HostError, Interrupted, JobFailed, JobInterrupted

TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "train.py", line 41, in <module>',
    "ValueError: bad",
]


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
                if action.number in self.alive:
                    self.exits(action.number, 143)
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


def test_a_job_starts_when_all_have_come_and_ends_when_all_have_finished():
    story = Story({"a": 1, "b": 1})
    first, second = list(story.alive.values())
    story.asks(first.name)
    assert story.worlds == []
    story.asks(second.name)
    assert story.sizes() == [2]
    story.whole()
    story.exits(story.rank(0), 0)
    assert not story.job.over
    story.exits(story.rank(1), 0)
    assert story.job.over and story.job.error is None
    assert [name for _, name in sorted(story.job.finished)] == [first.name, second.name]


def test_it_waits_for_the_slots_it_shall_start_with_and_not_for_ever():
    story = Story({"a": 1}, np=2, elastic_timeout=60)
    assert not story.alive
    story.passes(59)
    story.found({"a": 1, "b": 1})
    assert len(story.alive) == 2
    story = Story({"a": 1}, np=2, elastic_timeout=60)
    story.passes(61)
    assert isinstance(story.job.error, TimeoutException) and "at least 2 Horovod processes" in str(
        story.job.error
    )
    assert "Timeout after 60 seconds" in str(story.job.error)


def test_survivors_go_on_at_once_and_the_replacement_joins_when_it_is_ready():
    story = Story({"a": 2, "b": 1}, np=3).started()
    story.exits(story.rank(1), 137)
    assert len(story.alive) == 3, "one more is being started"
    story.asks(*story.members())
    assert story.sizes() == [3, 2], "nobody waits for its imports"
    story.whole()
    assert story.notified == []
    story.all_start()
    assert [one.change for one in story.notified] == [HostUpdateResult.added]
    assert story.sizes() == [3, 2], "the others are at work"
    story.asks(*story.members())
    assert story.sizes() == [3, 2, 3]
    story.whole()
    assert any("re-formed with 3 ranks" in text for text in story.texts())


def test_rank_0_is_lost_and_another_that_has_the_state_takes_its_place():
    story = Story({"a": 1, "b": 1, "c": 1}, np=3).started()
    first = story.worlds[-1].ordered[0].name
    story.exits(story.rank(0), 137)
    story.all_start()  # the replacement is quick
    story.asks(*story.members())
    assert story.sizes() == [3, 3]
    assert story.worlds[-1].ordered[0].name in story.with_state - {first}


def test_two_deaths_at_once_and_one_while_re_forming():
    story = Story({"a": 4}, np=4).started()
    story.exits(story.rank(3), 137)
    story.exits(story.rank(1), 137)
    survivors = story.members()
    story.asks(*survivors)
    assert story.sizes() == [4, 2]
    story.exits(story.number(survivors[1]), 137)  # before the new world is whole
    story.asks(survivors[0])
    assert story.sizes() == [4, 2, 1]
    story.whole()
    assert not story.job.over


def test_below_the_minimum_it_waits_for_replacements():
    story = Story({"a": 2}, np=2, min_np=2, elastic_timeout=60).started()
    story.exits(story.rank(1), 137)
    story.asks(*story.members())
    assert story.sizes() == [2]
    story.all_start()
    assert story.sizes() == [2, 2]


def test_the_job_ends_when_nobody_is_left_who_has_the_state():
    story = Story({"a": 1, "b": 1}).started()
    story.exits(story.rank(0), 137)
    story.exits(story.rank(1), 137)
    assert isinstance(story.job.error, HostError)
    assert "No hosts from previous set remaining, unable to broadcast state." in str(story.job.error)


def test_hosts_that_are_removed_leave_at_a_commit():
    story = Story({"a": 1, "b": 1}).started()
    gone = story.worlds[-1].ordered[1]
    story.found({"a": 1})
    assert story.dismissed == {gone.name: "b has been removed from the job"}
    assert [one.change for one in story.notified] == [HostUpdateResult.removed]
    story.asks(story.worlds[-1].ordered[0].name)
    assert story.sizes() == [2, 1]
    story.exits(story.number(gone.name), 0)
    assert not story.job.over and "b" not in story.open, "leaving is no success"


def test_the_host_with_the_state_is_kept_until_another_has_it():
    story = Story({"a": 1}, np=1).started()
    story.found({"b": 1})
    assert not story.dismissed, "a has the only state"
    story.all_start()
    assert story.notified[-1].change & HostUpdateResult.added
    story.asks(*story.members())
    assert story.sizes() == [1, 2]
    story.whole()
    assert list(story.dismissed.values()) == ["a has been removed from the job"]
    story.asks(story.worlds[-1].ordered[1].name)
    assert story.sizes() == [1, 2, 1]


def test_an_error_of_the_script_ends_the_job_when_it_comes_again():
    story = Story({"a": 2}, np=2).started()
    story.exits(story.rank(1), 1, TRACEBACK)
    assert not story.job.over
    story.all_start()
    story.asks(*story.members())
    story.whole()
    story.exits(story.rank(1), 1, TRACEBACK)
    assert isinstance(story.job.error, JobFailed) and "ValueError: bad" in str(story.job.error)


def test_an_error_on_one_host_only_is_the_fault_of_the_host():
    story = Story({"a": 1, "b": 1, "c": 1}, np=3, cooldown=(10, 100)).started()
    for _ in range(2):
        culprit = next(one for one in story.alive.values() if one.host == "b")
        story.exits(culprit.number, 1, TRACEBACK)
        story.asks(*story.members())
        if not story.job.over:
            story.all_start()
            story.asks(*story.members())
            story.whole()
    assert not story.job.over
    assert {one.host for one in story.alive.values()} == {"a", "c"}
    story.passes(101)
    assert {one.host for one in story.alive.values()} == {"a", "b", "c"}, "forgiven after the cool-down"


def test_an_echo_is_nobodys_fault():
    story = Story({"a": 2}, np=2).started()
    for _ in range(3):
        story.exits(story.rank(1), 1, ["horovod.common.exceptions.HorovodInternalError: rank 0 died"])
        story.all_start()
        story.asks(*story.members())
        story.whole()
    assert not story.job.over


def test_a_script_that_never_starts_is_reported():
    story = Story({"a": 2}, np=2)
    for number in list(story.alive):
        if not story.job.over:
            story.exits(number, 2, ["python: can't open file 'x.py'"])
    assert isinstance(story.job.error, JobFailed) and "can't open file" in str(story.job.error)


def test_processes_that_are_killed_while_they_start_give_the_host_up():
    story = Story({"a": 1}, np=1, fixed_hosts=True)
    for _ in range(3):
        story.exits(next(iter(story.alive)), 137)
    assert isinstance(story.job.error, JobFailed)


@pytest.mark.parametrize("event", [HostLost, HostUnreachable])
def test_a_lost_host_takes_its_workers_with_it(event):
    story = Story({"a": 1, "b": 2}, np=3, cooldown=(10, 100)).started()
    story.job.handle(event("b", "cable cut"), story.now)
    story.obey()
    assert {one.host for one in story.alive.values()} == {"a"}
    story.asks(*story.members())
    assert story.sizes() == [3, 1]
    story.whole()
    story.passes(101)
    assert {one.host for one in story.alive.values()} == {"a", "b"}


def test_a_silent_host_is_lost_sooner_if_others_miss_somebody():
    story = Story({"a": 1, "b": 1}, network_timeout=30).started()
    story.job.silences({"a": 0.0, "b": 12.0}, story.now)
    assert len(story.members()) == 2
    story.asks(story.worlds[-1].ordered[0].name)
    story.job.silences({"a": 0.0, "b": 12.0}, story.now)
    story.obey()
    assert story.sizes() == [2, 1]


def test_the_reset_limit():
    story = Story({"a": 2}, np=2, reset_limit=1).started()
    story.exits(story.rank(1), 137)
    story.asks(*story.members())
    story.whole()
    assert not story.job.over
    story.all_start()
    story.asks(*story.members())
    assert "number of resets during elastic job exceeded limit: 1" in str(story.job.error)


def test_without_any_commit_it_gives_up():
    story = Story({"a": 2}, np=2).started()
    tries = 0
    while not story.job.over and tries < 50:
        tries += 1
        story.exits(story.rank(1), 137)
        story.asks(*story.members())
        story.job.handle(StoreEvent("complete", story.job.generation), story.now)
        story.obey()
        facts = {"generation": story.job.generation, "commits": 1}
        story.job.told("state", story.worlds[-1].ordered[0].name, facts, story.now)
        story.obey()
        if not story.job.over:
            story.all_start()
            story.asks(*story.members())
            story.job.handle(StoreEvent("complete", story.job.generation), story.now)
            story.obey()
    assert "without a commit in between" in str(story.job.error)


def test_one_that_was_asked_to_end_leaves_in_order():
    story = Story({"a": 2}, np=2).started()
    leaver = story.worlds[-1].ordered[1]
    story.job.told("leave", leaver.name, {}, story.now)
    story.obey()
    assert "was asked to end" in story.dismissed[leaver.name]
    assert [one.change for one in story.notified] == [HostUpdateResult.removed]
    story.asks(story.worlds[-1].ordered[0].name)
    assert story.sizes() == [2, 1]
    story.exits(story.number(leaver.name), 0)
    assert len(story.alive) == 1, "its slot rests"
    story.passes(61)
    assert len(story.alive) == 2


def test_one_that_does_not_come_back_is_done_without():
    story = Story({"a": 2}, np=2, network_timeout=30).started()
    story.asks(story.worlds[-1].ordered[0].name)
    story.passes(59)
    assert story.sizes() == [2]
    story.passes(2)
    assert story.sizes() == [2, 1]
    late = story.worlds[0].ordered[1].name
    story.whole()
    story.asks(late)
    story.passes(1)
    assert story.notified, "it may come back as a newcomer"


def test_after_the_first_success_nobody_joins_and_losses_do_not_matter():
    story = Story({"a": 2, "b": 1}, np=3).started()
    story.exits(story.rank(2), 137)
    story.asks(*story.members())
    story.whole()
    assert len(story.alive) == 3
    story.exits(story.rank(0), 0)
    assert len(story.alive) == 1, "the replacement is not needed"
    story.exits(story.rank(1), 137)
    assert story.job.over and story.job.error is None and len(story.job.finished) == 1


def test_a_signal_ends_it():
    story = Story({"a": 1}, np=1).started()
    story.job.handle(Interrupted(2), story.now)
    assert isinstance(story.job.error, JobInterrupted)


STEPS = st.lists(
    st.sampled_from(["die", "die", "lose host", "hosts", "start", "ask", "whole", "time", "leave"]),
    min_size=5, max_size=60,
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.data())
def test_whatever_happens_the_job_goes_on_or_ends_with_a_reason(steps, data):
    def pick(options):
        return data.draw(st.sampled_from(sorted(options)))

    story = Story({"a": 2, "b": 2}, np=2, min_np=1, max_np=4, cooldown=(5, 50)).started()
    for step in steps:
        if story.job.over:
            break
        if step == "die" and story.alive:
            story.exits(pick(story.alive), 137)
        elif step == "lose host" and story.open:
            story.job.handle(HostLost(pick(story.open), "gone"), story.now)
        elif step == "hosts":
            story.found(data.draw(st.dictionaries(st.sampled_from("abc"), st.integers(1, 3), max_size=3)))
        elif step == "start" and story.alive:
            story.all_start()
        elif step == "ask" and story.members():
            story.asks(pick(story.members()))
        elif step == "whole" and set(story.members()) == {one.name for one in story.worlds[-1].ordered}:
            story.whole()
        elif step == "leave" and story.members():
            story.job.told("leave", pick(story.members()), {}, story.now)
        elif step == "time":
            story.passes(data.draw(st.sampled_from([1.0, 20.0, 70.0])))
        story.obey()
        leavers = [story.number(name) for name in story.dismissed if story.number(name) is not None]
        if leavers and data.draw(st.booleans()) and not story.job.over:
            story.exits(leavers[0], 0)
    # From here on nothing bad happens any more: everybody asks when it should, hosts are there.
    for _ in range(20):
        if story.job.over:
            break
        story.found({"a": 2, "b": 2, "c": 2})
        for name in story.dismissed:
            if story.number(name) is not None and not story.job.over:
                story.exits(story.number(name), 0)
        if not story.job.over:
            story.all_start()
            story.asks(*[name for name in story.members() if name not in story.dismissed])
            story.whole()
            story.passes(70)
    assert story.job.over or story.sizes()[-1] == 4, (story.sizes(), story.alive, story.texts()[-5:])
    if story.job.over:
        assert isinstance(story.job.error, HostError) and "unable to broadcast state" in str(story.job.error)
