# SPDX-License-Identifier: Apache-2.0
"""Ranks of a world that re-forms."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from horovod.rendezvous.generations import UNKNOWN
from horovod.runner.elastic.placement import Candidate, rank_order, seats

CANDIDATES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.booleans(), st.booleans()),
    min_size=1, max_size=8, unique_by=lambda one: one[:2],
)  # fmt: skip


def world(*found):
    return [Candidate(name, host, slot, rank, state) for name, host, slot, rank, state in found]


def test_holes_are_filled_and_nobody_moves_without_need():
    order = rank_order(
        world(
            ("new", "a", 1, UNKNOWN, False),
            ("x", "a", 0, 0, True),
            ("y", "b", 0, 2, True),
            ("z", "b", 1, 3, True),
        )
    )
    assert [one.name for one in order] == ["x", "new", "y", "z"]


def test_whoever_has_the_state_becomes_rank_0():
    order = rank_order(world(("new", "a", 0, UNKNOWN, False), ("y", "b", 0, 2, True), ("z", "b", 1, 1, True)))
    assert [one.name for one in order] == ["z", "new", "y"]
    order = rank_order(world(("y", "b", 0, 0, False), ("z", "b", 1, 1, True)))
    assert [one.name for one in order] == ["z", "y"]


def test_a_worker_keeps_its_local_rank_while_its_host_is_full():
    """Its device, too: the one in slot 1 survives, is rank 0 now, and a newcomer takes slot 0."""
    made = seats(
        rank_order(world(("new", "a", 0, UNKNOWN, False), ("old", "a", 1, 0, True))), {"a": "10.0.0.1"}
    )
    assert (made["old"].rank, made["old"].local_rank) == (0, 1)
    assert (made["new"].rank, made["new"].local_rank) == (1, 0)
    assert made["old"].address == "10.0.0.1" and made["old"].local_size == 2
    alone = seats(world(("old", "a", 1, 0, True)), {})
    assert (alone["old"].local_rank, alone["old"].local_size) == (0, 1), "below its size, always"


@given(CANDIDATES, st.randoms(use_true_random=False))
def test_every_rank_is_given_once_and_local_numbers_fit(found, random):
    ranks = list(range(12))
    random.shuffle(ranks)
    candidates = [
        Candidate(f"{host}{slot}", host, slot, ranks.pop() if old else UNKNOWN, old and state)
        for host, slot, old, state in found
    ]
    order = rank_order(candidates)
    assert sorted(one.name for one in order) == sorted(one.name for one in candidates)
    assert order[0].has_state or not any(one.has_state for one in candidates)
    made = seats(order, {})
    for host in {one.host for one in order}:
        mine = sorted((one for one in order if one.host == host), key=lambda one: one.slot)
        assert [made[one.name].local_rank for one in mine] == list(range(len(mine)))
    for local in range(4):
        column = [seat for seat in made.values() if seat.local_rank == local]
        assert sorted(seat.cross_rank for seat in column) == list(range(len(column)))
        assert all(seat.cross_size == len(column) for seat in column)
