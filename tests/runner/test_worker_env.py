# SPDX-License-Identifier: Apache-2.0
"""The variables that make a process a rank."""

from __future__ import annotations

from horovod.rendezvous.detection import detect
from horovod.runner.placement import place_ranks
from horovod.runner.worker_env import worker_env

SECRET = bytes(range(32))


def test_a_rank_recognises_itself():
    slot = place_ranks(["a", "b", "a"])[2]
    found = detect(worker_env({"MINE": "x"}, slot, "10.0.0.1", 4021, SECRET))
    assert (found.rank, found.size, found.host, found.launcher) == (2, 3, "a", "horovodrun")
    assert (found.local_rank, found.local_size, found.cross_rank, found.cross_size) == (1, 2, 0, 1)
    assert "10.0.0.1:4021" in found.found_by


def test_what_it_starts_from_is_kept_and_not_changed():
    base = {"MINE": "x", "HOROVOD_CPU_OPERATIONS": "mpi", "HOROVOD_RANK": "7", "PYTHONUNBUFFERED": ""}
    before = dict(base)
    env = worker_env(base, place_ranks(["a"])[0], "::1", 1, SECRET)
    assert base == before
    assert (env["MINE"], env["HOROVOD_CPU_OPERATIONS"], env["HOROVOD_RANK"]) == ("x", "mpi", "0")
    assert env["PYTHONUNBUFFERED"] == "1" and "HOROVOD_GLOO_IFACE" not in env


def test_interfaces_that_the_user_chose():
    slot = place_ranks(["a"])[0]
    env = worker_env({}, slot, "::1", 1, SECRET, ["eth1", "ib0"])
    assert (env["HOROVOD_GLOO_IFACE"], env["NCCL_SOCKET_IFNAME"]) == ("eth1", "eth1,ib0")
    assert worker_env({"NCCL_SOCKET_IFNAME": "x"}, slot, "", 1, SECRET, ["e"])["NCCL_SOCKET_IFNAME"] == "x"
