# SPDX-License-Identifier: Apache-2.0
"""Looking into jobs whose ranks run on other hosts, over ssh."""

from __future__ import annotations

import os

import pytest
from hosts_in_namespaces import hosts_fixture
from launching import environment
from mpi_environments import NAMES, MpiEnvironment
from waiting import until
from watching import SCRIPT, WatchedJob

hosts = hosts_fixture("a", "b")


@pytest.mark.parametrize("flags", [["--observe"], []], ids=["reporting", "by signal"])
def test_ranks_of_other_hosts_are_asked_for_their_stacks(hosts, tmp_path, flags):
    open(tmp_path / "stuck", "w").close()
    env = environment(PATH=hosts.environment()["PATH"])
    with WatchedJob(tmp_path, 2, "-H", "a:1,b:1", *flags, stuck_rank=1, env=env) as job:
        job.wait_for_ranks()
        until(lambda: any("waits for data" in line for line in job.out), "rank 1 is stuck")
        if flags:
            job.stacks({"rank 0 on a": "in allreduce", "rank 1 on b": "wait_in_the_data_loader"})
        else:
            job.shows(r"\[1\]<stderr>:.*wait_in_the_data_loader", r"\[0\]<stderr>:.*in allreduce")
        os.unlink(job.stuck)
        assert job.finish() == 0, job.err


@pytest.mark.parametrize("name", NAMES)
def test_ranks_that_mpirun_starts_on_other_hosts_report_too(hosts, tmp_path, name):
    mpi = MpiEnvironment(name)
    reason = mpi.prepare()
    if reason is not None:
        pytest.skip(reason)
    env = mpi.environment()
    env["PATH"] = f"{mpi.folder}/bin:{hosts.environment()['PATH']}"
    a, b = hosts.address["a"], hosts.address["b"]
    flags = ["--mpi", "-H", f"{a}:1,{b}:1", "--observe"]
    flags += [f"--mpi-args=--prefix {mpi.folder}"] if name == "openmpi" else []
    launcher = [*hosts.enter("a"), mpi.python, "-m", "horovod.runner.launch"]
    command = [mpi.python, SCRIPT, "--until", str(tmp_path / "end")]
    with WatchedJob(tmp_path, 2, *flags, launcher=launcher, command=command, env=env) as job:
        job.wait_for_ranks()
        job.stacks({f"rank 0 on {a}": "watched.py", f"rank 1 on {b}": "watched.py"})
        assert job.finish() == 0, job.err
