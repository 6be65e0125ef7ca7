# SPDX-License-Identifier: Apache-2.0
"""Ranks follow the machines: the one of task 0 first, neighbours together."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from horovod.spark.placing import TaskFacts, in_rank_order, shown, slots_of


def task(number, host, machine=None):
    return TaskFacts(number, 0, host, machine or f"key of {host}", "10.0.0.1", "python", "/tmp", ("0",))


def test_the_machine_of_task_0_comes_first():
    tasks = [task(0, "b"), task(1, "a"), task(2, "c"), task(3, "b"), task(4, "a")]
    placed = in_rank_order(tasks[::-1])
    assert [(one.task, one.host) for one in placed] == [(0, "b"), (3, "b"), (1, "a"), (4, "a"), (2, "c")]
    slots = slots_of(placed)
    assert [slot.local_rank for slot in slots] == [0, 1, 0, 1, 0]
    assert [slot.cross_size for slot in slots] == [3, 2, 3, 2, 3]
    assert shown(placed[1]) == "b (Spark task 3)"
    assert shown(replace(placed[1], attempt=1)) == "b (Spark task 3, attempt 2)"


def test_machines_of_one_name():
    placed = in_rank_order([task(0, "vm", "one"), task(1, "vm", "two"), task(2, "vm", "one")])
    assert [one.host for one in placed] == ["vm", "vm", "vm#2"]


def test_facts_travel():
    one = task(3, "a")
    assert TaskFacts.from_facts({"tag": one.to_tag(), "host": "x", "version": "1"}) == one


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.randoms())
def test_any_tasks(machines, source):
    tasks = [task(number, f"host{machine}") for number, machine in enumerate(machines)]
    shuffled = list(tasks)
    source.shuffle(shuffled)
    placed = in_rank_order(shuffled)
    assert sorted(one.task for one in placed) == list(range(len(tasks)))
    assert placed[0].task == 0 and placed == in_rank_order(tasks)
    blocks = [one.machine for i, one in enumerate(placed) if not i or placed[i - 1].machine != one.machine]
    assert len(set(blocks)) == len(blocks)
