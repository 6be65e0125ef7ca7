# SPDX-License-Identifier: Apache-2.0
"""What the events of a job mean, told as stories: no process, no clock."""

from __future__ import annotations

import itertools
import signal

import pytest

from horovod.runner.host_runner import HostLost, HostReady, HostUnreachable, WorkerExited
from horovod.runner.placement import place_ranks
from horovod.runner.supervision import (
    HostError,
    Interrupted,
    JobFailed,
    JobInterrupted,
    Supervisor,
    WorkerFailure,
    announcement,
    culprit,
)

ECHO = ["Traceback ...", "HorovodInternalError: Horovod lost rank 2 on b"]
REASON = ["Traceback ...", "KeyError: 'x'"]


class Story:
    """Ranks 0 and 1 on host a, 2 and 3 on host b; the network is given 30 s, the start 20 s."""

    def __init__(self, **tails):
        self.now = 1000.0
        self.tails = {int(name[4:]): lines for name, lines in tails.items()}
        slots = place_ranks(["a", "a", "b", "b"])
        self.it = Supervisor(slots, self.now, 20.0, 30.0, lambda rank: self.tails.get(rank, []))
        self.heard = []

    def ready(self, *hosts):
        for host in hosts or "ab":
            self.it.handle(HostReady(host, f"{host} is fine"), self.now)
        return self

    def ends(self, code, *ranks):
        for rank in ranks:
            self.it.handle(WorkerExited("aabb"[rank], rank, code), self.now)
        return self

    def happens(self, event):
        self.it.handle(event, self.now)
        return self

    def silent(self, **seconds):
        self.it.silences(seconds)
        return self

    def later(self, seconds):
        """Lets time pass, waking up when asked to."""
        until = self.now + seconds
        while (wake := self.it.wake_at()) is not None and wake <= until and not self.it.over:
            self.now = max(wake, self.now)
            self.it.tick(self.now)
            self.heard += [text for _, text in self.it.words()]
        self.now = until
        self.it.tick(self.now)
        return self

    def error(self, kind):
        assert self.it.over and type(self.it.error) is kind, self.it.error
        return self.it.error


def test_a_job_is_over_when_all_ranks_have_ended_well():
    story = Story().ready().ends(0, 0, 1, 2)
    assert not story.later(1e6).it.over
    assert story.ends(0, 3).it.over and story.it.error is None


def test_the_first_failure_is_blamed_shortly_after():
    story = Story(rank1=REASON).ready().ends(7, 1).ends(9, 3)
    assert not story.it.over and story.later(1).error(JobFailed).first == WorkerFailure(1, "a", 7, REASON)
    assert "Process name: 1\nExit code: 7\nHost: a\nLast lines of its output:" in str(story.it.error)


def test_the_first_failure_is_blamed_at_once_when_nobody_is_left():
    assert Story(rank1=REASON).ready().ends(0, 0, 2, 3).ends(7, 1).error(JobFailed).first.rank == 1


@pytest.mark.parametrize("order", list(itertools.permutations([0, 1, 2])))
def test_the_cause_is_blamed_in_whichever_order_echoes_arrive(order):
    story = Story(rank0=ECHO, rank1=ECHO, rank2=REASON).ready()
    for rank in order:
        story.ends(1, rank).later(0.1)
    assert story.later(5).error(JobFailed).first.rank == 2


def test_echoes_alone_are_given_time_for_the_cause_to_be_heard():
    story = Story(rank0=ECHO, rank3=REASON).ready().ends(1, 0).later(1.0)
    assert not story.it.over
    assert story.ends(1, 3).later(0.3).error(JobFailed).first.rank == 3
    assert Story(rank0=ECHO).ready().ends(1, 0).later(5).error(JobFailed).first.rank == 0


def test_a_lost_host_explains_the_echoes_but_not_a_failure_of_its_own():
    lost = HostLost("b", "the connection broke")
    echo = Story(rank0=ECHO).ready().ends(1, 0).happens(lost)
    assert str(echo.error(HostError)) == "Lost host b (ranks 2-3): the connection broke"
    cause = Story(rank0=REASON).ready().ends(1, 0).happens(lost).later(1)
    assert cause.error(JobFailed).first.rank == 0


def test_a_host_whose_ranks_have_ended_may_go():
    story = Story().ready().ends(0, 2, 3).happens(HostLost("b", "it was switched off"))
    assert not story.it.over and story.ends(0, 0, 1).it.over and story.it.error is None


def test_a_silent_host_is_endured_and_then_named_with_the_outage():
    story = Story().ready()
    for seconds in range(30):
        story.silent(a=0.5, b=float(seconds))
        assert not story.later(1).it.over
    text = str(story.silent(a=0.5, b=31.2).error(HostError))
    assert text.startswith(
        "Lost host b (ranks 2-3): no word from host b for 31 s: its network was cut or it went"
    )
    assert "Outages shorter than --network-timeout-seconds 30 are endured" in text


def test_a_silence_that_ends_means_nothing():
    story = Story().ready().silent(a=0.0, b=29.0).silent(a=0.0, b=0.0).later(100)
    assert not story.it.over and story.ends(0, 0, 1, 2, 3).it.error is None


def test_all_hosts_silent_at_a_time_are_named_together():
    text = str(Story().ready().silent(a=28.0, b=30.0).error(HostError))
    assert text.startswith("Lost hosts a, b (ranks 0-3): no word from hosts a, b for 30 s")


def test_ranks_that_fail_because_of_an_outage_are_not_blamed():
    """The links between ranks break a moment before the launcher's own patience ends."""
    story = Story(rank0=ECHO, rank1=ECHO).ready().silent(a=0.1, b=28.0).ends(1, 0, 1).later(5)
    assert "no word from host b for 28 s" in str(story.error(HostError))


def test_a_failure_of_its_own_is_blamed_in_spite_of_an_outage():
    story = Story(rank0=REASON).ready().silent(a=0.1, b=28.0).ends(1, 0).later(5)
    assert story.error(JobFailed).first.rank == 0


def test_hosts_that_do_not_answer_are_named_while_they_are_awaited_and_at_the_end():
    story = Story().ready("a").later(10)
    assert story.heard == ["host a is ready (a is fine)"] + ["1 of 2 hosts reached; waiting for b"] * 2
    text = str(story.later(20).error(HostError))
    assert text.startswith(
        "Timed out waiting for b to start workers over ssh. Please check connectivity between"
    )
    assert text.endswith("Timeout after 20 seconds.")


def test_a_failure_is_reported_although_another_host_is_still_awaited():
    story = Story(rank0=REASON).ready("a").later(19.9).ends(3, 0).later(5)
    assert story.error(JobFailed).first.rank == 0


def test_a_host_that_cannot_be_reached_ends_the_job():
    story = Story().happens(HostUnreachable("b", "no key of yours is accepted there"))
    assert str(story.error(HostError)) == (
        "Could not start workers on host b: no key of yours is accepted there"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_job_at_once(number):
    story = Story(rank0=REASON).ready().ends(1, 0).happens(Interrupted(number))
    assert story.error(JobInterrupted).number == number and number.name in str(story.it.error)


def test_nothing_counts_after_the_end():
    story = Story().ready().happens(Interrupted(signal.SIGTERM)).ends(1, 0).happens(HostLost("b", "?"))
    assert story.silent(b=99.0).later(5).error(JobInterrupted)


def test_the_culprit_among_dead_workers():
    failures = [WorkerFailure(3, "b", 1, ECHO), WorkerFailure(0, "a", 137), WorkerFailure(1, "a", 1, REASON)]
    assert culprit(failures).rank == 0 and culprit(failures[:1]).rank == 3


@pytest.mark.parametrize(
    "failure, text",
    [
        (WorkerFailure(1, "b", 3, ["a", "b: no"]), "exit code 3 before it joined the job; its last line: b"),
        (WorkerFailure(1, "b", 137), "exit code 137 (ended by SIGKILL) before it joined the job; it printed"),
    ],
)  # fmt: skip
def test_what_the_others_are_told_about_a_rank_that_will_not_come(failure, text):
    assert announcement(failure).startswith("rank 1 on b ended with " + text)
