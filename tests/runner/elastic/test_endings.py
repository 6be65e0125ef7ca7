# SPDX-License-Identifier: Apache-2.0
"""When an elastic job cannot go on."""

from __future__ import annotations

import sys

import pytest
from elastic_jobs import ElasticRun
from elastic_story import Story

from horovod.rendezvous.store_service import Event as StoreEvent
from horovod.runner.elastic.endings import TimeoutException
from horovod.runner.host_runner import HostLost
from horovod.runner.supervision import HostError, JobFailed

ECHO = ["horovod.common.exceptions.HorovodInternalError: rank 1 on a has ended"]


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
    """One loss is one reset; then the job goes on as it is, until the next."""
    story = Story({"a": 3}, np=3, reset_limit=1).started()
    story.exits(story.rank(1), 137)
    story.asks(*story.members())
    story.whole()
    assert "this was the last of 1 resets: nobody joins any more" in story.texts()
    story.all_start()
    story.found({"a": 3, "b": 1})
    story.passes(5)
    assert story.notified == [] and len(story.alive) == 3, "nobody pauses, and nobody more is started"
    assert story.sizes() == [3, 2] and not story.job.over
    story.exits(story.rank(1), 137)
    story.asks(*story.members())
    assert "number of resets during elastic job exceeded limit: 1" in str(story.job.error)


def test_newcomers_are_no_resets():
    story = Story({"a": 1}, np=1, reset_limit=1).started()
    for slots in (2, 3):
        story.found({"a": slots})
        story.all_start()
        story.asks(*story.members())
        story.whole()
    assert story.sizes() == [1, 2, 3] and not story.job.over
    story.exits(story.rank(0), 137)
    story.all_start()
    story.asks(*story.members())
    assert story.sizes() == [1, 2, 3, 3], "a replacement that is there is taken in at once"


def test_departures_and_errors_are_resets():
    for leaves in (True, False):
        story = Story({"a": 2}, np=2, reset_limit=0).started()
        if leaves:
            story.job.told("leave", story.worlds[-1].ordered[1].name, {}, story.now)
            story.asks(story.worlds[-1].ordered[0].name)
        else:
            story.asks(*story.members())
        assert "exceeded limit: 0" in str(story.job.error)


def test_an_announced_newcomer_does_not_hide_a_loss():
    story = Story({"a": 2}, np=2, reset_limit=1).started()
    story.found({"a": 2, "b": 1})
    story.all_start()
    assert story.notified
    story.exits(story.rank(1), 137)
    story.asks(*story.members())
    story.whole()
    assert any("the last of 1 resets" in text for text in story.texts())


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


@pytest.mark.parametrize("code, tail", [(137, []), (139, []), (1, ["ValueError: bad"]), (1, ECHO)])
def test_one_that_fails_after_another_has_finished_fails_the_job(code, tail):
    story = Story({"a": 2}, np=2).started()
    story.exits(story.rank(1), 0)
    story.exits(story.rank(0), code, tail)
    assert isinstance(story.job.error, JobFailed) and story.job.error.first.code == code


def test_it_fails_even_if_the_others_go_on_without_it():
    story = Story({"a": 3}, np=3).started()
    story.exits(story.rank(0), 0)
    story.exits(story.rank(1), 137)
    story.asks(*story.members())
    story.whole()
    story.exits(story.rank(0), 0)
    assert story.job.over and story.job.error.first.code == 137


def test_an_echo_is_not_to_blame_if_there_is_anything_else():
    story = Story({"a": 3}, np=3).started()
    story.exits(story.rank(0), 0)
    story.exits(story.rank(1), 1, ECHO)
    story.exits(story.rank(2), 139)
    assert story.job.error.first.rank == 2


def test_a_host_that_is_lost_after_another_rank_has_finished_fails_the_job():
    story = Story({"a": 1, "b": 1}).started()
    story.exits(story.rank(0), 0)
    story.job.handle(HostLost("b", "cable cut"), story.now)
    assert isinstance(story.job.error, JobFailed) and "cable cut" in str(story.job.error)


def test_one_that_was_let_go_may_end_as_it_likes():
    story = Story({"a": 2}, np=2).started()
    story.job.told("leave", story.worlds[-1].ordered[1].name, {}, story.now)
    story.exits(story.rank(0), 0)
    story.exits(story.rank(1), 143)
    assert story.job.over and story.job.error is None


def test_what_failed_before_it_had_a_rank_does_not_matter_to_a_job_that_does_without():
    story = Story({"a": 1}, np=1).started()
    story.found({"a": 1, "b": 1})
    story.exits(next(n for n, one in story.alive.items() if one.host == "b"), 1, ["ValueError: bad"])
    story.exits(story.rank(0), 0)
    assert story.job.over and story.job.error is None


@pytest.mark.parametrize("code", [1, 137])
def test_what_failed_in_the_last_world_matters_though_nobody_noticed(code):
    story = Story({"a": 2}, np=2).started()
    story.exits(story.rank(1), code, ["ValueError: bad"])
    story.exits(story.rank(0), 0)
    assert isinstance(story.job.error, JobFailed) and story.job.error.first.rank == 1


def test_what_failed_before_others_went_on_is_forgiven():
    story = Story({"a": 2}, np=2).started()
    story.exits(story.rank(1), 1, ["ValueError: bad"])
    story.asks(*story.members())
    story.exits(story.rank(0), 0)
    assert story.sizes() == [2, 1] and story.job.over and story.job.error is None


def test_one_that_never_had_a_rank_is_not_called_rank_0():
    story = Story({"a": 1}, np=1, fixed_hosts=True)
    for _ in range(3):
        story.exits(next(iter(story.alive)), 137)
    assert "Process name: a[0]#0\n" in str(story.job.error)


KILLED_AT_LAST = """
import os, signal, time
import numpy as np
import horovod.numpy as hvd
from horovod.common.elastic import ObjectState

hvd.init()
state = ObjectState(bcast_object=hvd.broadcast_object, get_rank=hvd.rank, step=0)

@hvd.elastic.run
def train(state):
    while state.step < 3:
        hvd.allreduce(np.ones(1), name="x")
        state.step += 1
        state.commit()

train(state)
if hvd.rank() == 0:
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
"""

MISSES_ANOTHER = """
import time
import numpy as np
import horovod.numpy as hvd

hvd.init()
if hvd.rank() == 0:
    time.sleep(1)
    hvd.allreduce(np.ones(1), name="x")
"""


@pytest.mark.parametrize(
    "script, least, word",
    [(KILLED_AT_LAST, "1", "137 (ended by SIGKILL)"), (MISSES_ANOTHER, "2", "HorovodInternalError")],
    ids=["killed", "an echo"],
)
def test_the_exit_code_of_a_job_whose_rank_fails_at_last(tmp_path, script, least, word):
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, str(tmp_path / "script.py")]
    with ElasticRun(tmp_path, ["localhost:2"], "-np", "2", "--min-np", least, command=command) as job:
        assert job.end() == 1, job.text()
    assert "Process name: 0" in job.text() and word in job.text()


BAD_HOST = """
import os, sys, time
import numpy as np
import horovod.numpy as hvd
from horovod.common.elastic import ObjectState

if os.environ["HOROVOD_HOSTNAME"] == "127.0.0.1":
    raise ValueError("this host is bad")
hvd.init()
state = ObjectState(bcast_object=hvd.broadcast_object, get_rank=hvd.rank, step=0)

@hvd.elastic.run
def train(state):
    while not os.path.exists(sys.argv[1]):
        hvd.allreduce(np.ones(1), name="x")
        state.step += 1
        state.commit()
        time.sleep(0.01)

print("training", flush=True)
train(state)
"""


def test_newcomers_that_fail_do_not_fail_a_job_that_does_without(tmp_path):
    (tmp_path / "script.py").write_text(BAD_HOST)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "enough")]
    with ElasticRun(tmp_path, ["localhost:1"], "-np", "1", "--min-np", "1", command=command) as job:
        job.wait_for_line("training")
        job.hosts("localhost:1", "127.0.0.1:1")
        job.wait_for_line("host 127.0.0.1 is left alone")
        (tmp_path / "enough").touch()
        assert job.end() == 0, job.text()
    assert len(job.events("lost")) == 2
