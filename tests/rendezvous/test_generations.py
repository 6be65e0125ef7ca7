# SPDX-License-Identifier: Apache-2.0
"""Who meets whom, without any socket: places, failures, latecomers, drivers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horovod.rendezvous.errors import StoreError, Superseded
from horovod.rendezvous.generations import Claim, Generations, Seat


def claim(rank, size=3, group=(), pid=1, worker=""):
    return Claim(worker, rank, size, group, f"node{rank}", pid)


def all_done(*members):
    for member in members:
        member.done = True


def test_ranks_of_one_job_sit_down_together_again_and_again():
    jobs = Generations(3)
    for number in (1, 2, 3):
        found = [jobs.sit(claim(rank)) for rank in (2, 0, 1)]
        assert {generation.number for generation, _ in found} == {number}
        assert [member.seat.rank for _, member in found] == [2, 0, 1]
        assert found[0][0].complete


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=60))
def test_the_nth_time_that_ranks_come_they_meet_in_one_generation(order):
    """Whatever the order; a rank may be far ahead of the others only as far as its own generation goes."""
    jobs = Generations(4)
    seats = {rank: [] for rank in range(4)}
    for rank in order:
        newest = jobs.newest()
        if newest is not None and str(rank) in newest.members and not newest.complete:
            continue  # it waits in there
        seats[rank].append(jobs.sit(claim(rank, 4))[1].seat.generation)
    for rank, numbers in seats.items():
        assert numbers == list(range(1, len(numbers) + 1)), rank


def test_parts_of_a_job_have_worlds_of_their_own_and_meet_in_the_whole_again():
    jobs = Generations(4)
    left = [jobs.sit(claim(rank, 2, group=(0, 1))) for rank in (0, 1)]
    right = [jobs.sit(claim(rank, 2, group=(3, 2))) for rank in (1, 0)]
    assert left[0][0] is left[1][0] and right[0][0] is right[1][0] and left[0][0] is not right[0][0]
    whole = [jobs.sit(claim(rank, 4)) for rank in range(4)]
    assert len({generation.number for generation, _ in whole}) == 1
    numbers = {found[0].number for found in (*left, *right, *whole)}
    assert len(numbers) == 3, "no number is used twice"


def test_a_fresh_process_takes_a_dead_ones_place():
    jobs = Generations(3)
    for _ in range(4):  # the survivors have been in many worlds
        all_done(*(jobs.sit(claim(rank))[1] for rank in range(3)))
    fresh = jobs.sit(claim(2, pid=99))
    survivors = [jobs.sit(claim(rank)) for rank in (0, 1)]
    assert {generation.number for generation, _ in (fresh, *survivors)} == {5}


def test_a_failure_is_heard_once_by_each_and_then_all_meet_again():
    changed = []
    jobs = Generations(3, lambda generation, failed: changed.append((generation, failed)))
    first, zero = jobs.sit(claim(0))
    jobs.sit(claim(1))
    jobs.fail_generation(first, "rank 1 on node1 could not start: no disk")
    assert changed == [(first, True)]
    with pytest.raises(StoreError, match="no disk"):
        jobs.check(first, zero)
    with pytest.raises(StoreError, match="no disk"):
        jobs.sit(claim(2))  # it had not come yet
    second = {jobs.sit(claim(rank))[0].number for rank in (2, 0, 1)}
    assert second == {2}


def test_who_comes_late_to_a_failed_world_joins_the_next_if_that_has_begun():
    jobs = Generations(3)
    first, _ = jobs.sit(claim(0))
    jobs.fail_generation(first, "no disk")
    assert jobs.sit(claim(0))[0].number == 2
    assert jobs.sit(claim(2))[0].number == 2


def test_who_still_talks_to_an_old_generation_is_turned_away_by_name():
    jobs = Generations(2)
    old, late = jobs.sit(claim(1, 2))
    jobs.sit(claim(0, 2))
    jobs.fail_generation(old, "rank 0 on node0 could not start: waited 30 s")
    jobs.sit(claim(0, 2))
    text = r"rank 1 on node1 belongs to generation 1; the job is at 2 \(rank 0 on node0 could not start"
    with pytest.raises(StoreError, match=text):
        jobs.check(old, late)


def test_a_slow_member_of_a_complete_world_goes_on_while_a_fast_one_is_back_for_the_next():
    jobs = Generations(2)
    first, slow = jobs.sit(claim(1, 2))
    _, fast = jobs.sit(claim(0, 2))
    fast.done = True
    assert jobs.sit(claim(0, 2))[0].number == 2
    jobs.check(first, slow)  # it has not read yet that all are there
    assert jobs.sit(claim(1, 2))[0].number == 2


def test_a_member_that_hangs_up_fails_its_generation_unless_it_is_done():
    jobs = Generations(2)
    first, zero = jobs.sit(claim(0, 2))
    _, one = jobs.sit(claim(1, 2))
    one.done = True
    jobs.left(first, one)
    assert first.failure is None
    jobs.left(first, zero)
    assert first.failure == "rank 0 on node0 disappeared while the job was starting (its process ended)"


def test_sizes_that_differ_are_named():
    jobs = Generations()
    jobs.sit(claim(0, 2))
    with pytest.raises(StoreError, match="rank 1 on node1 believes in 3 ranks, others in 2"):
        jobs.sit(claim(1, 3))


def test_a_claim_that_contradicts_itself_is_refused():
    with pytest.raises(StoreError, match="asks for its rank"):
        Generations().sit(claim(1, 2, group=(5,)))


def seats(*workers):
    return {worker: Seat(rank, len(workers)) for rank, worker in enumerate(workers)}


@pytest.mark.parametrize(
    "wrong",
    [{}, {"a": Seat(1, 1)}, {"a": Seat(0, 2), "b": Seat(0, 2)}, {"a": Seat(0, 3), "b": Seat(1, 3)}],
)
def test_a_driver_cannot_assign_ranks_that_are_no_world(wrong):
    with pytest.raises(ValueError, match="not the ranks of a world"):
        Generations().assign(wrong)


def test_in_a_driven_job_a_failure_sends_all_to_wait_for_the_next_assignment():
    jobs = Generations()
    jobs.assign(seats("a", "b"))
    generation, member = jobs.sit(claim(-1, -1, worker="a"))
    jobs.lost("b", "b's process ended with exit code 9")
    with pytest.raises(Superseded, match="exit code 9"):
        jobs.check(generation, member)
    assert jobs.sit(claim(-1, -1, worker="a")) is None
    assert jobs.sit(claim(-1, -1, worker="c")) is None
    jobs.assign(seats("c", "a"))
    assert jobs.sit(claim(-1, -1, worker="a"))[1].seat == Seat(1, 2, generation=2)
    assert jobs.sit(claim(-1, -1, worker="c"))[0].complete


@settings(deadline=None)
@given(st.lists(st.sampled_from(["assign", "lost", "sit a", "sit b", "sit c"]), max_size=40))
def test_in_a_driven_job_nobody_sits_twice_in_a_generation_or_in_one_it_has_no_place_in(steps):
    jobs = Generations(driven=True)
    turn = 0
    sat = set()
    for step in steps:
        if step == "assign":
            turn += 1
            number = jobs.assign(seats(*("abc"[turn % 3 :] + "abc")[:2]))
            assert number == turn
        elif step == "lost":
            jobs.lost("a", "gone")
        else:
            worker = step[-1]
            found = jobs.sit(claim(-1, -1, worker=worker))
            if found is not None:
                generation, member = found
                assert generation.number == turn and worker in generation.seats
                assert (turn, worker) not in sat and generation.failure is None
                sat.add((turn, worker))
