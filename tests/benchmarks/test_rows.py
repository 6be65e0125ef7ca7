# SPDX-License-Identifier: Apache-2.0
"""Medians, the middle half, ratios of neighbouring turns, and rows as JSON."""

from __future__ import annotations

import json

import pytest
from benchmark_samples import times
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import rows
from benchmarks.noise import Noise
from benchmarks.rows import Row, Turn, ratio, summary
from benchmarks.units import ranks_text, size_text, time_text


def test_summary_is_in_microseconds() -> None:
    seconds = [1e-6, 2e-6, 3e-6, 4e-6, 100e-6]
    s = summary([Turn(seconds[:3], [5e-6]), Turn(seconds[3:], [7e-6])])
    assert (s.median, s.p25, s.p75) == pytest.approx((3.0, 2.0, 4.0))
    assert s.p99 == pytest.approx(7.0)
    assert (s.samples, s.calls) == (5, 2)
    assert s.turns == pytest.approx([2.0, 52.0])


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=60))
def test_quartiles_are_in_order(seconds: list[float]) -> None:
    s = summary([Turn(seconds, seconds)])
    assert s.p25 <= s.median <= s.p75 <= s.p99 * (1 + 1e-9)


def test_ratios_are_of_neighbouring_turns() -> None:
    # The machine became ten times slower in the second turn, for both.
    ours = summary([Turn([1.0], [1.0]), Turn([10.0], [10.0]), Turn([1.0], [1.0])])
    theirs = summary([Turn([2.0], [2.0]), Turn([20.0], [20.0]), Turn([2.0], [2.0])])
    assert ratio(ours, theirs) == (0.5, 0.5, 0.5)


def test_ratio_without_pairs_takes_the_medians() -> None:
    found = ratio(times(10), times(20, turns=1))
    assert found == pytest.approx((0.5, 0.45, 0.55))


def test_rows_survive_json() -> None:
    row = Row(
        "allreduce 4 B, 2 ranks", "allreduce", {"horovod": times(20)}, {"mpich": "not installed"}, "",
        {"batches": 11.0}, Noise(1.0, 0.0, 0.5), {"ranks": 2, "bytes": 4}, "elsewhere",
    )  # fmt: skip
    assert rows.from_json(json.loads(json.dumps(rows.as_json(row)))) == row
    empty = Row("x", not_run="because")
    assert rows.from_json(rows.as_json(empty)) == empty


@pytest.mark.parametrize("size, text", [(4, "4 B"), (64 << 10, "64 KiB"), (128 << 20, "128 MiB")])
def test_sizes_as_text(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize("us, text", [(3.14, "3.1 us"), (4520, "4.52 ms"), (1.2e6, "1.20 s")])
def test_times_as_text(us: float, text: str) -> None:
    assert time_text(us) == text


def test_ranks_as_text() -> None:
    assert (ranks_text(1), ranks_text(4)) == ("1 rank", "4 ranks")
