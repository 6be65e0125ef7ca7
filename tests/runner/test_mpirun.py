# SPDX-License-Identifier: Apache-2.0
"""Under a real mpirun: Open MPI's and MPICH's, with data over sockets and over MPI."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from launching import REPORT, ROOT, reports
from mpi_environments import NAMES, MpiEnvironment

AS_HOST = os.path.join(ROOT, "tests", "runner", "scripts", "as_host.sh")
LAUNCHER = {"openmpi": "Open MPI's mpirun", "mpich": "MPICH's or Intel MPI's mpirun"}


@pytest.fixture(scope="module", params=NAMES)
def mpi(request):
    made = MpiEnvironment(request.param)
    reason = made.prepare()
    if reason is not None:
        pytest.skip(reason)
    return made


def check(done, mpi, size, rounds=1):
    assert done.returncode == 0, done.stdout + done.stderr
    found = reports(done.stdout)
    assert [(r["round"], r["rank"], r["size"]) for r in found] == [
        (number, rank, size) for number in range(rounds) for rank in range(size)
    ]
    assert {r["launcher"] for r in found} == {LAUNCHER[mpi.name]} and all(r["mpi"] for r in found)
    return found


def test_two_ranks_and_a_second_init(mpi):
    check(mpi.run(2, [mpi.python, REPORT, "--rounds", "2"]), mpi, 2, rounds=2)


@pytest.mark.parametrize("operations", ["gloo", "MPI"])
def test_two_hosts_on_both_data_paths(mpi, operations):
    done = mpi.run(4, [AS_HOST, mpi.python, REPORT, "--rounds", "2"], HOROVOD_CPU_OPERATIONS=operations)
    found = check(done, mpi, 4, rounds=2)
    assert [(r["local_rank"], r["cross_rank"], r["cross_size"]) for r in found[:4]] == [
        (0, 0, 2), (1, 0, 2), (0, 1, 2), (1, 1, 2),
    ]  # fmt: skip


@pytest.mark.parametrize("operations", ["gloo", "mpi"])
def test_mpi4py_in_the_same_process(mpi, operations):
    command = [AS_HOST, mpi.python, REPORT, "--mpi4py", "--rounds", "2"]
    check(mpi.run(4, command, HOROVOD_CPU_OPERATIONS=operations), mpi, 4, rounds=2)


def test_the_tensorflow_1_script_of_the_tutorials(tmp_path):
    """Four ranks of real training, as its docstring starts it."""
    pytest.importorskip("tensorflow")
    openmpi = MpiEnvironment("openmpi")
    reason = openmpi.prepare()
    if reason is not None:
        pytest.skip(reason)
    script = os.path.join(ROOT, "examples", "tensorflow1_graph_mnist.py")
    done = openmpi.run(
        4, [openmpi.python, script, "--steps", "300"], timeout=240,
        TF_CPP_MIN_LOG_LEVEL="3", OMP_NUM_THREADS="1", TF_NUM_INTRAOP_THREADS="1", TMPDIR=str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    (accuracy,) = re.findall(r"test accuracy ([\d.]+)", done.stdout)
    assert float(accuracy) > 0.6  # 0.764 from the script's seeds


def test_the_standard_abi():
    """MPICH 5 brings the library of MPI-5's standard ABI as well: the third family of handles."""
    mpich = MpiEnvironment("mpich")
    reason = mpich.prepare()
    if reason is not None:
        pytest.skip(reason)
    library = os.path.join(mpich.folder, "lib", "libmpi_abi.so.1")
    if not os.path.exists(library):
        pytest.skip(f"this mpich has no {library}")
    command = [AS_HOST, mpich.python, REPORT, "--rounds", "2"]
    check(
        mpich.run(4, command, HOROVOD_CPU_OPERATIONS="mpi", HOROVOD_MPI_LIBRARY=library), mpich, 4, rounds=2
    )


def test_a_communicator_as_the_world(mpi):
    check(mpi.run(2, [mpi.python, REPORT, "--comm", "world", "--rounds", "2"]), mpi, 2, rounds=2)


@pytest.mark.parametrize("comm", ["split", "list"])
def test_a_part_as_the_world(mpi, comm):
    done = mpi.run(4, [mpi.python, REPORT, "--comm", comm])
    assert done.returncode == 0, done.stderr
    assert [(r["rank"], r["size"]) for r in reports(done.stdout)] == [(0, 2), (0, 2), (1, 2), (1, 2)]


def test_data_over_mpi_on_a_part_of_the_world(mpi):
    command = [AS_HOST, mpi.python, REPORT, "--comm", "split"]
    done = mpi.run(4, command, HOROVOD_CPU_OPERATIONS="mpi")
    assert done.returncode == 0, done.stderr
    assert [(r["rank"], r["size"], r["cross_size"]) for r in reports(done.stdout)] == [
        (0, 2, 2), (0, 2, 2), (1, 2, 2), (1, 2, 2),
    ]  # fmt: skip


def test_a_rank_that_dies_ends_the_job(mpi):
    done = mpi.run(2, [mpi.python, REPORT, "--crash", "1", "--sleep", "1000"], timeout=60)
    assert done.returncode != 0 and "crashed on purpose" in done.stdout + done.stderr


def test_horovodrun_mpi(mpi):
    words = ["-np", "2", "--mpi", "--verbose", mpi.python, REPORT]
    done = subprocess.run(
        [mpi.python, "-m", "horovod.runner.launch", *words], env=mpi.environment(),
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    check(done, mpi, 2)
    assert "horovodrun: mpirun" in done.stderr


def run_function(mpi, body):
    """horovod.run(use_mpi=True) of a function of two ranks with this body, in a process of its own."""
    code = (
        "import horovod\n"
        "def work():\n"
        f"    import os, horovod.numpy as hvd; hvd.init(); {body}\n"
        "print(horovod.run(work, np=2, use_mpi=True))\n"
    )
    return subprocess.run(
        [mpi.python, "-c", code],
        env=mpi.environment(),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_horovod_run_with_mpi(mpi):
    done = run_function(mpi, "return hvd.rank() * 10, hvd.mpi_enabled()")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[(0, True), (10, True)]"


FAILURES = [
    ("[][hvd.rank()] if hvd.rank() else hvd.barrier()", "IndexError: list index out of range"),
    (
        "os._exit(7) if hvd.rank() else hvd.barrier()",
        r"foreign_job.CommandFailed: mpirun failed with exit code \d+",
    ),
]


@pytest.mark.parametrize("body, error", FAILURES, ids=["it raises", "it dies"])
def test_a_function_that_fails_under_mpi(mpi, body, error):
    done = run_function(mpi, body)
    assert done.returncode == 1 and re.search(error + "$", done.stderr.splitlines()[-1]), done.stderr
    assert ("rank 1 on host localhost raised:" in done.stderr) == ("IndexError" in error)


def test_data_over_mpi_without_mpirun_is_named(mpi):
    env = mpi.environment(HOROVOD_CPU_OPERATIONS="mpi")
    words = ["-np", "2", "-H", "localhost:1,127.0.0.1:1", mpi.python, REPORT]
    done = subprocess.run(
        [sys.executable, "-m", "horovod.runner.launch", *words], env=env,
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "needs a job started by mpirun or horovodrun --mpi" in done.stderr


def test_an_mpirun_of_another_mpi_is_named():
    """MPICH's mpirun with Open MPI's library would give every process a world of its own."""
    openmpi, mpich = MpiEnvironment("openmpi"), MpiEnvironment("mpich")
    for one in (openmpi, mpich):
        reason = one.prepare()
        if reason is not None:
            pytest.skip(reason)
    loaded = mpich.run(2, [openmpi.python, REPORT, "--mpi4py"])  # mpi4py has brought the wrong one
    library = os.path.join(mpich.folder, "lib", "libmpi.so.12")
    asked = openmpi.run(2, [openmpi.python, REPORT], HOROVOD_MPI_LIBRARY=library)
    for done in (loaded, asked):
        text = done.stdout + done.stderr
        assert done.returncode != 0
        assert "mpirun started this job" in text and "HOROVOD_MPI_LIBRARY" in text, text
