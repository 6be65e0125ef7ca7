# SPDX-License-Identifier: Apache-2.0
"""When the world of an elastic job forms, and for whom it waits."""

from __future__ import annotations

from elastic_story import Story

from horovod.runner.elastic.hosts import HostUpdateResult


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
