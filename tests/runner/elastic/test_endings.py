# SPDX-License-Identifier: Apache-2.0
"""When an elastic job cannot go on."""

from __future__ import annotations

from elastic_story import Story

from horovod.rendezvous.store_service import Event as StoreEvent
from horovod.runner.elastic.endings import TimeoutException
from horovod.runner.supervision import HostError


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


def test_the_job_ends_when_nobody_is_left_who_has_the_state():
    story = Story({"a": 1, "b": 1}).started()
    story.exits(story.rank(0), 137)
    story.exits(story.rank(1), 137)
    assert isinstance(story.job.error, HostError)
    assert "No hosts from previous set remaining, unable to broadcast state." in str(story.job.error)


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
