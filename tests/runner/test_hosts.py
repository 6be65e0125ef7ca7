# SPDX-License-Identifier: Apache-2.0
"""Hosts and slots, as users and batch systems name them."""

from __future__ import annotations

import pytest

from horovod.runner.allocation import allocated_hosts, expand_counts, expand_nodelist
from horovod.runner.hosts import (
    HostInfo,
    parse_host_files,
    parse_hosts,
    parse_hosts_and_slots,
)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("worker-0:2", [("worker-0", 2)]),
        ("worker-0:2,worker-1:4", [("worker-0", 2), ("worker-1", 4)]),
        (" a.b.c:1 , 10.0.0.1:3", [("a.b.c", 1), ("10.0.0.1", 3)]),
        ("[fe80::1]:2", [("fe80::1", 2)]),
    ],
)
def test_hosts_are_parsed(text, expected):
    assert parse_hosts(text) == [HostInfo(*one) for one in expected]
    assert parse_hosts_and_slots(text) == ([h for h, _ in expected], dict(expected))


@pytest.mark.parametrize("text", ["a", "a:", ":2", "a:x", "a:2,", "a:2;b:2", "a b:2", "a:-1"])
def test_wrong_hosts_are_refused(text):
    with pytest.raises(ValueError, match="Invalid host input, please make sure it has format as"):
        parse_hosts(text)


def test_a_host_listed_twice_is_named_with_the_fix():
    with pytest.raises(ValueError, match="Host a is listed 2 times; list it once, e.g. a:3"):
        parse_hosts("a:1,b:1,a:2")


def test_host_file(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# the cluster\na slots=2\n\nb slots=4  # big one\nc\nd:3\n")
    assert parse_host_files(str(path)) == "a:2,b:4,c:1,d:3"


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "lists no hosts"),
        ("a slot=2", r"hosts:1: do not understand 'slot=2'"),
        (None, "Cannot read the host file"),
    ],
)
def test_wrong_host_files_are_named(tmp_path, text, message):
    path = tmp_path / "hosts"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=message):
        parse_host_files(str(path))


@pytest.mark.parametrize(
    "text, expected",
    [
        ("node7", ["node7"]),
        ("node[001-003,7],gpu1", ["node001", "node002", "node003", "node7", "gpu1"]),
        ("r[1-2]n[08-10]", ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"]),
        ("a,b-[2,4]-ib", ["a", "b-2-ib", "b-4-ib"]),
    ],
)
def test_slurm_node_lists(text, expected):
    assert expand_nodelist(text) == expected


def test_slurm_counts():
    assert expand_counts("2(x3),1", 4) == [2, 2, 2, 1]
    with pytest.raises(ValueError, match="does not describe 3 nodes"):
        expand_counts("2", 3)


@pytest.mark.parametrize(
    "env, expected",
    [
        ({}, None),
        ({"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)"}, [("n1", 2), ("n2", 2)]),
        ({"SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "2", "SLURM_PROCID": "0"}, [("n1", 2)]),
        ({"SLURM_JOB_NODELIST": "n1", "SLURM_PROCID": "0", "SLURM_STEP_ID": "0"}, None),
        ({"LSB_JOBID": "1", "LSB_MCPU_HOSTS": "batch 1 n1 4 n2 4"}, [("n1", 4), ("n2", 4)]),
    ],
)
def test_allocations_are_found(env, expected):
    found = allocated_hosts(env)
    assert found == (None if expected is None else [HostInfo(*one) for one in expected])
