# SPDX-License-Identifier: Apache-2.0
"""Looking into jobs whose ranks run on other hosts, over ssh."""

from __future__ import annotations

import os
import signal

import pytest
from hosts_in_namespaces import Hosts, why_not
from launching import environment, horovodrun
from waiting import until
from watching import WatchedJob

REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"no hosts for ssh: {REASON}")


@pytest.fixture(scope="module")
def hosts():
    with Hosts(["a", "b"]) as made:
        yield made


@pytest.mark.parametrize("flags", [["--observe"], []], ids=["reporting", "by signal"])
def test_ranks_of_other_hosts_are_asked_for_their_stacks(hosts, tmp_path, flags):
    open(tmp_path / "stuck", "w").close()
    env = environment(PATH=hosts.environment()["PATH"])
    with WatchedJob(tmp_path, 2, "-H", "a:1,b:1", *flags, stuck_rank=1, env=env) as job:
        job.wait_for_ranks()
        until(lambda: any("waits for data" in line for line in job.out), "rank 1 is stuck")
        if flags:
            done = horovodrun("--stacks", str(job.process.pid))
            first, second = done.stdout.split("---- rank 1 on b")
            assert "---- rank 0 on a" in first and "wait_in_the_data_loader" in second, done.stderr
        else:
            job.process.send_signal(signal.SIGQUIT)
            job.said(r"\[1\]<stderr>:.*wait_in_the_data_loader")
            job.said(r"\[0\]<stderr>:.*in allreduce")
        os.unlink(job.stuck)
        assert job.finish() == 0
