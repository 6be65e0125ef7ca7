# SPDX-License-Identifier: Apache-2.0
"""Sets of times, against sets of whole numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from horovod.runner.report.intervals import minus, total, union

INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


def moments(intervals):
    return {time for begin, end in intervals for time in range(begin, end)}


@given(INTERVALS)
def test_union(intervals):
    merged = union(intervals)
    assert moments(merged) == moments(intervals) and total(merged) == len(moments(intervals))
    assert all(a[1] < b[0] for a, b in zip(merged, merged[1:]))


@given(INTERVALS, INTERVALS)
def test_minus(whole, gone):
    rest = minus(union(whole), union(gone))
    assert moments(rest) == moments(whole) - moments(gone) and total(rest) == len(moments(rest))
