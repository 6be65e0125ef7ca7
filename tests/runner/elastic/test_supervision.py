# SPDX-License-Identifier: Apache-2.0
"""What an elastic job does about what happens: stories, and random ones in which nothing may be forgotten."""

from __future__ import annotations

from elastic_story import Story
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horovod.runner.elastic.hosts import HostUpdateResult
from horovod.runner.host_runner import HostLost
from horovod.runner.supervision import HostError, Interrupted, JobInterrupted


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


def test_after_the_first_success_nobody_joins():
    story = Story({"a": 2, "b": 1}, np=3).started()
    story.exits(story.rank(2), 137)
    story.asks(*story.members())
    story.whole()
    assert len(story.alive) == 3
    story.exits(story.rank(0), 0)
    assert len(story.alive) == 1, "the replacement is not needed"
    story.exits(story.rank(1), 0)
    assert story.job.over and story.job.error is None and len(story.job.finished) == 2, (
        "what was lost before, others have done"
    )


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
        elif step == "whole" and story.may_be_whole():
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
