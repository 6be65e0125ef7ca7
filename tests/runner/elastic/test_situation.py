# SPDX-License-Identifier: Apache-2.0
"""What an elastic job makes of failures: whose fault they are, and who is gone."""

from __future__ import annotations

import pytest
from elastic_story import Story

from horovod.runner.host_runner import HostLost, HostUnreachable
from horovod.runner.supervision import JobFailed

TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "train.py", line 41, in <module>',
    "ValueError: bad",
]


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
