# SPDX-License-Identifier: Apache-2.0
"""A machine without IPv4, not even on its loopback interface."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from launching import REPORT, environment, reports

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2 for network namespaces"
)


@pytest.fixture(scope="module")
def only_ipv6():
    """A network namespace whose only address is ::1."""
    name = f"hvd6-{os.getpid()}"
    inside = ["ip", "netns", "exec", name]
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True)
        subprocess.run([*inside, "ip", "addr", "del", "127.0.0.1/8", "dev", "lo"], check=True)
        yield inside
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def test_its_addresses_are_found(only_ipv6):
    show = (
        "from horovod.rendezvous import network\n"
        "print(network.loopback(), network.interface_address('lo'), network.primary_address())"
    )
    done = subprocess.run(
        [*only_ipv6, sys.executable, "-c", show], env=environment(), capture_output=True, text=True
    )
    assert done.stdout.split() == ["::1", "::1", "::1"], done.stderr


def test_a_job_runs_over_the_loopback_interface(only_ipv6):
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", "3", "-H", "localhost:2,[::1]:1"]
    done = subprocess.run(
        [*only_ipv6, *command, sys.executable, REPORT, "--rounds", "2"], env=environment(),
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = reports(done.stdout)
    assert [(r["round"], r["rank"], r["cross_size"]) for r in found[:3]] == [(0, 0, 2), (0, 1, 1), (0, 2, 2)]


def test_ranks_that_meet_by_a_file_do_too(only_ipv6, tmp_path):
    script = "import horovod.numpy as hvd; hvd.init(); print(hvd.rank(), hvd.allreduce(1.0, op=hvd.Sum))"
    shared = {"JSM_NAMESPACE_SIZE": "2", "LSB_JOBID": "1", "HOROVOD_RENDEZVOUS_DIR": str(tmp_path)}
    ranks = [
        subprocess.Popen(
            [*only_ipv6, sys.executable, "-c", script],
            env=environment(**shared, JSM_NAMESPACE_RANK=str(rank)),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    for rank, process in enumerate(ranks):
        out, errors = process.communicate(timeout=60)
        assert out.split() == [str(rank), "2.0"], errors
