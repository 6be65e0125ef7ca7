# SPDX-License-Identifier: Apache-2.0
"""What was moved together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from horovod.runner.report.batches import batches, by_size
from horovod.runner.report.traces import Operation


def op(name, started, ended, nbytes=4, kind="ALLREDUCE"):
    return Operation(name, kind, nbytes, started, started, started, ended)


def test_fused_operations_start_before_any_of_them_ends():
    moved = batches(
        [op("a", 0, 10), op("b", 1, 11), op("c", 10, 20), op("d", 12, 20, kind="BROADCAST"), op("e", 30, 30)]
    )
    assert [(one.names, one.bytes, one.microseconds) for one in moved] == [
        (["a", "b"], 8, 11), (["c"], 4, 10), (["d"], 4, 8),
    ]  # fmt: skip
    assert moved[1].bandwidth == 4e5


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 30), st.integers(0, 1 << 20)), max_size=30))
def test_nothing_is_lost(rows):
    ops = [
        op(str(number), start, start + length, nbytes) for number, (start, length, nbytes) in enumerate(rows)
    ]
    moved = batches(ops)
    took_time = [one for one in ops if one.ended > one.started]
    assert sorted(name for one in moved for name in one.names) == sorted(one.name for one in took_time)
    assert sum(one.bytes for one in moved) == sum(one.bytes for one in took_time)
    classes = by_size(moved)
    assert sum(one.bytes for one in classes) == sum(one.bytes for one in moved)
    assert sum(one.number for one in classes) == sum(one.bytes > 0 for one in moved)
    assert all(one.least <= one.bytes / one.number < 4 * one.least for one in classes)
