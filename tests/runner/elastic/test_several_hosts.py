# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs over ssh, on hosts made of network namespaces: they die, are cut off, come and go."""

from __future__ import annotations

import os
import signal

import pytest
from elastic_jobs import ElasticRun, check_results
from hosts_in_namespaces import hosts_fixture

hosts = hosts_fixture("a", "b", "c")
QUICK = ["--blacklist-cooldown-range", "1", "2"]


@pytest.fixture(autouse=True)
def whole(hosts):
    """Every test leaves its hosts as it found them."""
    yield
    for name in hosts.names:
        hosts.mend(name)
        hosts.start_sshd(name)


def start(hosts, tmp_path, names, *words, script=()):
    arguments = [*script, "--wait-for", str(tmp_path / "enough")]
    job = ElasticRun(
        tmp_path, [f"{name}:1" for name in names], *words, script=arguments, env=hosts.environment()
    )
    try:
        job.wait_for("train", count=len(names), size=len(names))
        job.wait_for_steps(3)
    except BaseException:
        job.__exit__()
        raise
    return job


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as words:
            return words.read()
    except OSError:
        return ""  # ended meanwhile


def finish(job, tmp_path, size=None):
    job.wait_for_steps(2)
    (tmp_path / "enough").touch()
    check_results(job.finish(), size)


@pytest.mark.parametrize("lost", ["a", "c"], ids=["with rank 0", "another"])
def test_a_host_dies(hosts, tmp_path, lost):
    with start(hosts, tmp_path, "abc", "-np", "3", "--min-np", "1", *QUICK) as job:
        before = job.world()
        hosts.kill_everything(lost)
        job.wait_for("train", count=2, size=2)
        assert set(job.world().values()) < set(before.values()), "the others keep their processes"
        hosts.start_sshd(lost)  # it is back: forgiven after the cool-down
        job.wait_for("train", count=6, size=3, seconds=90)
        finish(job, tmp_path, 3)
    assert any(one["host"] == lost for one in job.events("host lost"))


def test_a_cable_is_cut_and_plugged_in_again(hosts, tmp_path):
    patience = ["--network-timeout-seconds", "8"]
    with start(hosts, tmp_path, "ab", "-np", "2", "--min-np", "1", *QUICK, *patience) as job:
        hosts.cut("b")
        job.wait_for("train", size=1)
        job.wait_for_steps(2)
        hosts.mend("b")
        job.wait_for("train", count=4, size=2, seconds=90)
        finish(job, tmp_path, 2)
    assert "b" in {one["host"] for one in job.events("host lost")}


def test_issue_3852(hosts, tmp_path):
    """A job shrinks to one host: one dies, of another the agent is killed."""
    with start(hosts, tmp_path, "abc", "-np", "3", "--min-np", "1") as job:
        agents = [pid for pid in hosts.pids("b") if "horovod.runner.agent" in command_line(pid)]
        assert agents
        hosts.kill_everything("a")
        for pid in agents:  # with everything it started
            os.kill(pid, signal.SIGKILL)
        job.wait_for("train", size=1, host="c")
        finish(job, tmp_path, 1)


def test_issue_2248(hosts, tmp_path):
    """Hosts come and go, also from a job that began on this machine, at its loopback address."""
    with start(hosts, tmp_path, ["localhost"], "-np", "1", "--min-np", "1", *QUICK) as job:
        job.hosts("localhost:1", "b:2")
        job.wait_for_hosts("localhost", "b", "b")
        job.wait_for_steps(2)
        job.hosts("b:1", "c:1")
        job.wait_for_hosts("b", "c")
        finish(job, tmp_path, 2)


def test_a_host_that_is_listed_before_it_answers(hosts, tmp_path):
    hosts._daemons["c"].kill()
    hosts._daemons["c"].wait()
    with start(hosts, tmp_path, "a", "-np", "1", "--min-np", "1", *QUICK) as job:
        job.hosts("a:1", "c:1")
        job.wait_for_line("could not reach host c")
        job.wait_for_steps(2)
        hosts.start_sshd("c")
        job.wait_for("train", count=2, size=2, seconds=90)
        finish(job, tmp_path, 2)
