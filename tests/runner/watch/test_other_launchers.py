# SPDX-License-Identifier: Apache-2.0
"""Looking into jobs whose ranks mpirun or jsrun starts for horovodrun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request

import pytest
from launching import HOROVODRUN, descendants, environment
from mpi_environments import NAMES, MpiEnvironment
from waiting import until
from watching import SCRIPT, Visitor, WatchedJob

# Starts its ranks with the variables that the real one sets, as far as readers/jsrun.py reads them.
JSRUN = """#!{python}
import os, subprocess, sys
words = sys.argv[1:]
ranks = int(words[words.index("--nrs") + 1])
command = words[words.index("--rs_per_host") + 2 :]
started = []
for rank in range(ranks):
    numbers = {{"RANK": rank, "SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_SIZE": ranks}}
    own = {{f"JSM_NAMESPACE_{{name}}": str(number) for name, number in numbers.items()}}
    started.append(subprocess.Popen(command, env=dict(os.environ, **own)))
sys.exit(max(one.wait() for one in started))
"""


# horovod.run of the same training; the last word is the file that ends it. Returns where each rank ran.
FUNCTION = f"""
import horovod, sys

def train(end):
    import os, runpy, sys
    sys.argv[1:] = ["--until", end]
    runpy.run_path({SCRIPT!r})
    return os.getpid()

pids = horovod.run(train, [sys.argv[-1]], np=2, use_mpi=True, dashboard=True, metrics_port=0)
print("ran in", *pids, flush=True)
"""


def check(job, program="watched.py", processes=4):
    """The page, the metrics and the stacks of a job of two ranks; then its end.

    Args:
        program: a word of the command lines of the ranks and of so many `processes`, all in all.
    """
    job.wait_for_ranks()
    page = Visitor(job.address())
    assert page.enter() == 303
    view = page.wait_for(
        lambda view: [bool(one["steps_s"]) and not one["bad"] for one in view["ranks"]] == [True] * 2
    )
    assert [(one["rank"], one["pid"]) for one in view["ranks"]] == [(rank, job.pids[rank]) for rank in (0, 1)]
    texts = [line["text"] for line in page.wait_for(lambda view: view["lines"])["lines"]]
    assert any("trains in process" in text for text in texts)
    metrics = job.said(r"metrics: (http://\S+)")[1]
    served = urllib.request.urlopen(metrics, timeout=60).read().decode()
    assert 'horovod_steps_total{host="' in served and 'rank="1"' in served
    assert job.stacks({"rank 0": "watched.py", "rank 1": "watched.py"}).count("---- rank ") == 2
    shown = subprocess.run(["ps", "-ww", "-o", "args=", "-p", _pids(job)], capture_output=True, text=True)
    assert shown.stdout.count(program) >= processes, shown.stdout
    secret = _variable(job.pids[1], "_HOROVOD_SECRET_KEY")
    assert len(secret) > 40 and secret not in shown.stdout, "a secret on a command line is everybody's"
    assert job.finish() == 0, job.err


def _pids(job):
    return ",".join(str(pid) for pid in descendants(job.process.pid))


def _variable(pid, name):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return dict(one.decode().split("=", 1) for one in file.read().split(b"\0") if b"=" in one)[name]


@pytest.fixture(params=NAMES)
def mpi(request):
    made = MpiEnvironment(request.param)
    reason = made.prepare()
    if reason is not None:
        pytest.skip(reason)
    return made


@pytest.fixture
def under_mpirun(mpi, tmp_path):
    """Starts the job of two ranks with some flags."""
    launcher = [mpi.python, "-m", "horovod.runner.launch"]
    command = [mpi.python, SCRIPT, "--until", str(tmp_path / "end")]
    return lambda *flags: WatchedJob(
        tmp_path, 2, "--mpi", *flags, launcher=launcher, command=command, env=mpi.environment()
    )


def test_a_signal_to_the_launcher_ends_all(under_mpirun):
    with under_mpirun("--observe") as job:
        job.wait_for_ranks()
        job.process.send_signal(signal.SIGTERM)
        assert job.process.wait(60) == 128 + signal.SIGTERM
        until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in job.pids.values()), "ranks are gone")


def test_page_metrics_and_stacks_under_mpirun(under_mpirun):
    with under_mpirun("--dashboard", "--metrics-port", "0") as job:
        check(job)


def test_page_metrics_and_stacks_of_a_function_under_mpirun(mpi, tmp_path):
    python = [mpi.python, "-c", FUNCTION]
    with WatchedJob(
        tmp_path, 2, launcher=python, command=[str(tmp_path / "end")], env=mpi.environment()
    ) as job:
        check(job, "horovod.runner.run_task", 3)
        until(lambda: f"ran in {job.pids[0]} {job.pids[1]}\n" in job.out, "the results are there")


def jsrun_environment(folder):
    stand_in = folder / "jsrun"
    stand_in.write_text(JSRUN.format(python=sys.executable))
    stand_in.chmod(0o755)
    return environment(LSB_JOBID=f"{os.getpid()}{folder.name}", PATH=f"{folder}:{os.environ['PATH']}")


def test_page_metrics_and_stacks_under_jsrun(tmp_path):
    env = jsrun_environment(tmp_path)
    flags = ["--jsrun", "-H", "localhost:2", "--dashboard", "--metrics-port", "0"]
    with WatchedJob(tmp_path, 2, *flags, env=env) as job:
        check(job)


def test_the_exit_status_of_the_other_launcher_is_the_jobs(tmp_path):
    env = jsrun_environment(tmp_path)
    words = ["-np", "2", "--jsrun", "-H", "localhost:2", "--observe", sys.executable, "-c", "exit(7)"]
    done = subprocess.run(
        [*HOROVODRUN, *words], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 7, done.stderr
