# SPDX-License-Identifier: Apache-2.0
"""How a rank spent its time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.runner.report.intervals import total, union
from horovod.runner.report.spending import spend
from horovod.runner.report.traces import Operation

times = st.integers(0, 300)


@st.composite
def operations(draw):
    found = []
    for number in range(draw(st.integers(1, 12))):
        submitted = draw(times)
        ready = submitted + draw(times)
        started = ready + draw(st.integers(0, 20))
        ended = started + draw(st.integers(0, 50))
        found.append(
            Operation(
                f"t{number}", "ALLREDUCE", 4, submitted, ready, started, ended, draw(st.integers(-1, 3))
            )
        )
    return found


@given(operations())
def test_every_moment_is_spent_once(ops):
    end = max(op.ended for op in ops)
    one = spend(0, ops, (0, end))
    assert one.compute + one.wait + one.communication == pytest.approx(end)
    assert min(one.compute, one.wait, one.communication) >= -1e-9
    assert sum(one.caused().values()) == pytest.approx(one.wait)
    assert sum(exposed.length for exposed in one.exposed) == pytest.approx(one.communication)
    assert all(wait.length > 0 for wait in one.waits)
    assert 0 <= one.hidden <= one.compute + 1e-9 and 0 <= one.overlap <= 1
    assert 0 not in one.caused(), "no rank waits for itself"
    outstanding = total(union((op.submitted, op.ended) for op in ops))
    assert one.wait + one.communication <= outstanding + 1e-9


@given(operations())
def test_nobody_waits_if_all_are_ready_at_once(ops):
    at_once = [op._replace(ready=op.submitted) for op in ops]
    assert spend(0, at_once, (0, max(op.ended for op in ops))).wait == pytest.approx(0)


def test_a_blocking_call():
    """40 of its own, 30 waiting for rank 2, 10 moving."""
    one = spend(0, [Operation("a", "ALLREDUCE", 4, 40, 70, 70, 80, 2)], (0, 80))
    assert (one.compute, one.wait, one.communication, one.hidden) == (40, 30, 10, 0)
    assert one.caused() == {2: 30} and one.waits[0].first


def test_behind_the_backward_pass():
    """The first tensor moves while the script computes the second: that costs nothing."""
    ops = [
        Operation("a", "ALLREDUCE", 4, 10, 12, 12, 22, 1),
        Operation("b", "ALLREDUCE", 4, 20, 25, 25, 35, 1),
    ]
    one = spend(0, ops, (0, 35))
    assert (one.compute, one.wait, one.communication, one.hidden) == (20, 5, 10, 8)
    assert [(wait.name, wait.first) for wait in one.waits] == [("a", True), ("b", False)]


def test_late_where_nobody_stands_idle():
    """The first tensor comes late, while this rank still computes: so the second is not moved meanwhile."""
    late, second = (10, 20, 20, 30, 3), (20, 20, 30, 40, 0)
    one = spend(0, [Operation("a", "ALLREDUCE", 4, *late), Operation("b", "ALLREDUCE", 4, *second)], (0, 40))
    assert (one.compute, one.wait, one.communication) == (20, 10, 10) and one.caused() == {3: 10}


def test_its_own_news_are_no_wait():
    one = spend(1, [Operation("a", "ALLREDUCE", 4, 40, 70, 70, 80, 1)], (0, 80))
    assert (one.wait, one.communication) == (0, 40)
