# SPDX-License-Identifier: Apache-2.0
"""Verdicts: absolute times, ratios to others, steadiness, and what has none."""

from __future__ import annotations

import pytest
from benchmark_samples import row, times

from benchmarks import table
from benchmarks.goals import GOALS, NOT, REACHED, UNKNOWN, judge, unanswered
from benchmarks.noise import Noise
from benchmarks.rows import Row


@pytest.mark.parametrize("median, verdict", [(1.5, REACHED), (1.6, NOT)])
def test_absolute(median: float, verdict: str) -> None:
    (found,) = judge(row("allreduce 4 B, 1 rank", horovod=median))
    assert found.verdict == verdict
    assert found.ratio.median == pytest.approx(median / 1.5)


def test_relative_to_each_contender() -> None:
    openmpi, mpich = judge(row("allreduce 1 MiB, 2 ranks", horovod=100, openmpi=90, mpich=110))
    assert (openmpi.verdict, mpich.verdict) == (NOT, REACHED)
    assert openmpi.ratio.median == pytest.approx(100 / 90)


@pytest.mark.parametrize(
    "name, other, factor",
    [
        ("allreduce 128 MiB, 4 ranks", "memcpy", 1.8),
        ("training, 20 x Linear(1024)", "ddp", 1 / 1.5),
        ("NumPy out of place, 64 MiB", "in_place", 1 / 0.8),
        ("four hosts in a ring, 1 Gbit/s, 64 MiB", "wire's_limit", 1 / 0.9),
        ("10,000 collectives a second, timeline", "off", 1.02),
    ],
)
def test_factors(name: str, other: str, factor: float) -> None:
    just, over = factor * 0.999, factor * 1.001
    assert judge(row(name, **{"horovod": just, other: 1}))[0].verdict == REACHED
    assert judge(row(name, **{"horovod": over, other: 1}))[0].verdict == NOT


def test_only_what_is_added_to_the_same_work_without_us() -> None:
    name, others = "TensorFlow graph, 160 gradients", {"numpy": 90, "TensorFlow_alone": 400}
    for ours, verdict in ((490, REACHED), (510, NOT)):
        whole, added = judge(row(name, horovod=ours, **others))
        assert whole.verdict == NOT and whole.ratio.median == pytest.approx(ours / 100)
        assert added.verdict == verdict and added.ratio.median == pytest.approx((ours - 400) / 100)
    _, added = judge(row(name, horovod=490, numpy=90))
    assert added.verdict == UNKNOWN and "TensorFlow alone" in added.reason


def test_steadiness() -> None:
    name = "allreduce 4 B, 16 ranks"
    steady = Row(name, times={"horovod": times(10, p99=29)})
    unsteady = Row(name, times={"horovod": times(10, p99=31)})
    assert [j.verdict for j in judge(steady)] == [REACHED, REACHED]
    assert [j.verdict for j in judge(unsteady)] == [REACHED, NOT]


def test_noise_is_said() -> None:
    (near,) = judge(row("allreduce 4 B, 2 ranks", horovod=5.1))
    (far,) = judge(row("allreduce 4 B, 2 ranks", horovod=50))
    assert near.within_noise and not far.within_noise
    assert "within noise" in table.verdict(near)


def test_no_verdict_without_a_measurement() -> None:
    (found,) = judge(Row("allreduce 4 B, 1 rank", not_run="no such thing"))
    assert (found.verdict, found.reason) == (UNKNOWN, "no such thing")
    without = row("allreduce 1 MiB, 2 ranks", horovod=100, mpich=110)
    without.absent["openmpi"] = "not installable"
    openmpi, mpich = judge(without)
    assert openmpi.verdict == UNKNOWN and "not installable" in openmpi.reason
    assert mpich.verdict == REACHED


def test_no_goal_is_forgotten() -> None:
    missing = unanswered([row("allreduce 4 B, 1 rank", horovod=1)], "why not")
    assert [r.name for r in missing] == [name for name in GOALS if name != "allreduce 4 B, 1 rank"]
    assert all(r.not_run == "why not" for r in missing)


def test_the_closing_table_has_every_verdict_and_marks_a_busy_machine() -> None:
    busy = row("allreduce 4 B, 1 rank", horovod=14.5)
    busy.noise = Noise(3.0, 0.0, 0.5)
    text = table.verdicts([busy, Row("allreduce 4 B, 16 ranks", not_run="needs 16 cores")])
    assert "allreduce 4 B, 1 rank*" in text and " 9.67  not" in text
    assert text.count("needs 16 cores") == 2
    assert "0 reached, 1 not, 2 without a verdict" in text


def test_details_name_everybody_and_everything() -> None:
    one = row("allreduce 4 B, 2 ranks", horovod=20, gloo=300)
    one.absent["mpich"] = "Traceback...\nValueError: no MPICH"
    one.noise = Noise(3.0, 0.01, 0.5)
    text = table.details(one)
    assert "15.00x our time" in text
    assert "without mpich: ValueError: no MPICH" in text
    assert "others 50%, stolen 1%" in text
