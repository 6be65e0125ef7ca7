# SPDX-License-Identifier: Apache-2.0
"""Which rank sits where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.runner.hosts import HostInfo, parse_hosts
from horovod.runner.placement import get_host_assignments, place_ranks, ranks_per_host, slots_by_host


def test_ranks_fill_one_host_after_the_other():
    slots = get_host_assignments(parse_hosts("a:2,b:3"), 5)
    assert [(s.hostname, s.rank, s.local_rank, s.cross_rank) for s in slots] == [
        ("a", 0, 0, 0), ("a", 1, 1, 0), ("b", 2, 0, 1), ("b", 3, 1, 1), ("b", 4, 2, 0),
    ]  # fmt: skip
    assert [(s.size, s.local_size, s.cross_size) for s in slots] == [(5, 2, 2)] * 2 + [(5, 3, 2)] * 2 + [
        (5, 3, 1)
    ]
    assert slots[3].to_response_string() == "3,5,1,3,1,2"


@pytest.mark.parametrize("np, places", [(1, "a"), (3, "aab"), (4, "aabb")])
def test_exactly_np_ranks_are_placed_on_more_slots(np, places):
    slots = get_host_assignments(parse_hosts("a:2,b:2,c:9"), np, np)
    assert "".join(s.hostname for s in slots) == places
    assert {s.size for s in slots} == {np}


def test_more_ranks_than_slots_are_refused():
    with pytest.raises(
        ValueError, match=r"Requested more processes \(5\) than there are available slots \(4\)"
    ):
        get_host_assignments(parse_hosts("a:2,b:2"), 5)


@given(st.lists(st.sampled_from("abcd"), max_size=20))
def test_ranks_on_given_hosts(hosts):
    """Whatever the order: local ranks count within a host, cross ranks count the hosts of a column."""
    slots = place_ranks(hosts)
    assert [(s.rank, s.hostname, s.size) for s in slots] == [
        (rank, host, len(hosts)) for rank, host in enumerate(hosts)
    ]
    for host, mine in slots_by_host(slots).items():
        assert [s.local_rank for s in mine] == list(range(hosts.count(host)))
        assert {s.local_size for s in mine} == {hosts.count(host)}
    for column in {s.local_rank for s in slots}:
        members = [s for s in slots if s.local_rank == column]
        assert sorted(s.cross_rank for s in members) == list(range(len(members)))
        assert {s.cross_size for s in members} == {len(members)}


def test_given_hosts_that_fill_up_are_placed_as_listed_hosts_are():
    assert place_ranks(["a", "a", "b", "b", "b"]) == get_host_assignments(parse_hosts("a:2,b:3"), 5)


def test_counts_of_hosts():
    hosts = [HostInfo("a", 2), HostInfo("b", 0), HostInfo("c", 10**9), HostInfo("d", 1)]
    assert ranks_per_host(hosts, 5) == {"a": 2, "c": 3} and ranks_per_host(hosts, 0) == {}


def test_more_ranks_than_a_machine_can_run_are_refused_at_once():
    with pytest.raises(ValueError, match="100000000 processes on host a are more than a machine can run"):
        get_host_assignments([HostInfo("a", 10**8)], 10**8)
