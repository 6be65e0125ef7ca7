# SPDX-License-Identifier: Apache-2.0
"""horovodrun --mpi and --jsrun: the command lines built for each MPI."""

from __future__ import annotations

import pytest

from horovod.runner.hosts import parse_hosts
from horovod.runner.js_run import js_command
from horovod.runner.mpi_run import INTEL, MPICH, OPEN_MPI, SPECTRUM, implementation_of, mpi_command
from horovod.runner.settings import JobSettings

COMMAND = ["python", "train.py", "a b"]


def settings(hosts="a:2,b:2", np=4, env=None, **more):
    return JobSettings(COMMAND, np, parse_hosts(hosts), env or {}, **more)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("mpirun (Open MPI) 5.0.11\n", OPEN_MPI),
        ("mpirun (OpenRTE) 2.1.1", OPEN_MPI),
        ("mpirun (IBM Spectrum MPI) 10.4.0", SPECTRUM),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.8", INTEL),
        ("HYDRA build details:\n    Version: 5.0.2", MPICH),
        ("some shell script", None),
    ],
)
def test_implementations_are_recognised(text, expected):
    assert implementation_of(text) == expected


def test_open_mpi():
    argv = mpi_command(OPEN_MPI, settings(env={"B": "2", "A": "1", "PWD": "/", "BASH_FUNC_x%%": "y"}))
    assert argv == (
        ["mpirun", "--allow-run-as-root", "--tag-output", "-np", "4", "-H", "a:2,b:2", "--bind-to", "none",
         "--map-by", "slot", "--mca", "pml", "ob1", "--mca", "btl", "^openib", "-x", "A", "-x", "B"]
        + COMMAND
    )  # fmt: skip


def test_open_mpi_with_everything():
    argv = mpi_command(
        OPEN_MPI,
        settings(np=3, ssh_port=22, ssh_identity_file="k", nics=["e0", "e1"], output_filename="o",
                 prefix_output_with_timestamp=True),
        "--oversubscribe -x 'C=1 2'",
        "--bind-to core",
    )  # fmt: skip
    text = " ".join(argv)
    assert "-np 3 -H a:2,b:1 --bind-to core" in text
    assert argv[argv.index("plm_rsh_args") + 1] == "-p 22 -i k"
    assert "--mca btl_tcp_if_include e0,e1 -x NCCL_SOCKET_IFNAME=e0,e1" in text
    assert "--timestamp-output --output-filename o" in text
    assert argv[-6:] == ["--oversubscribe", "-x", "C=1 2"] + COMMAND


def test_open_mpi_is_told_the_interfaces_once():
    argv = mpi_command(OPEN_MPI, settings(env={"A": "1", "NCCL_SOCKET_IFNAME": "ib0"}, nics=["e0"]))
    assert [word for word in argv if "NCCL_SOCKET_IFNAME" in word] == ["NCCL_SOCKET_IFNAME=e0"]
    assert "NCCL_SOCKET_IFNAME" in mpi_command(OPEN_MPI, settings(env={"NCCL_SOCKET_IFNAME": "ib0"}))


def test_large_clusters_get_a_flat_tree():
    hosts = ",".join(f"n{i}:1" for i in range(64))
    assert "--mca plm_rsh_no_tree_spawn true --mca plm_rsh_num_concurrent 64" in " ".join(
        mpi_command(OPEN_MPI, settings(hosts, 64))
    )
    assert "plm_rsh_no_tree_spawn" not in mpi_command(OPEN_MPI, settings(hosts, 63))


@pytest.mark.parametrize("tcp", [False, True])
def test_spectrum(tcp):
    argv = mpi_command(SPECTRUM, settings(), tcp=tcp)
    end = "-tcp" if tcp else "python"
    binding = "--bind-to socket --map-by socket --rank-by core"
    assert " ".join(argv[6:14]) == f"a:2,b:2 {binding} {end}"
    assert ("-tcp" in argv) is tcp and "openib" not in " ".join(argv)


@pytest.mark.parametrize("implementation", [MPICH, INTEL])
def test_hydra(implementation):
    argv = mpi_command(implementation, settings(ssh_port=22, nics=["e0"], output_filename="o"))
    binding = ["-bind-to", "none", "-map-by", "slot"] if implementation == MPICH else []
    hosts = ["mpirun", "-l", "-np", "4", "-ppn", "2", "-hosts", "a,b"]
    ssh = ["-bootstrap=ssh", "-bootstrap-exec-args", "-p 22"]
    network = ["-iface", "e0", "-genv", "NCCL_SOCKET_IFNAME", "e0"]
    assert argv == hosts + binding + ssh + network + ["-outfile-pattern", "o"] + COMMAND


@pytest.mark.parametrize("hosts, np, slots, used", [
    ("a:2,b:2", 3, "2", "a,b"),
    ("a:4,b:4", 2, "4", "a"),
    ("a:2,b:2,c:1", 4, "2", "a,b"),
    ("a:2,b:4", 4, "2", "a,b"),  # two on each, whatever is listed
])  # fmt: skip
def test_hydra_need_not_fill_the_last_host(hosts, np, slots, used):
    argv = mpi_command(MPICH, settings(hosts, np))
    assert argv[2:8] == ["-np", str(np), "-ppn", slots, "-hosts", used]


def test_what_hydra_cannot_do():
    with pytest.raises(ValueError, match="Different slots in -hosts parameter are not supported"):
        mpi_command(MPICH, settings("a:2,b:1", 3))
    with pytest.raises(ValueError, match="do not support multiple interfaces"):
        mpi_command(INTEL, settings(nics=["a", "b"]))


def test_jsrun():
    assert js_command(settings(output_filename="o"), "-gpu") == (
        ["jsrun", "--nrs", "4", "--tasks_per_rs", "1", "--rs_per_host", "2", "--stdio_stdout", "o",
         "--stdio_stderr", "o", "--smpiargs", "-gpu"] + COMMAND
    )  # fmt: skip
    assert js_command(settings(), None, "--erf_input f") == ["jsrun", "--erf_input", "f"] + COMMAND
