# SPDX-License-Identifier: Apache-2.0
"""All numbers together, on jobs whose numbers are known."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timelines import Imagined
from traces_of import analysis_of

from horovod.runner.measured import Measured
from horovod.runner.report.analysis import analyse
from horovod.runner.report.reading import Job
from horovod.runner.report.traces import Trace


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6), st.data(), st.sampled_from([0.0, 500.0]), st.booleans())
def test_the_slow_rank_is_found(size, data, between, by_clock):
    """Whoever is late is blamed for just that, whether files name it or only clocks show it."""
    slow = data.draw(st.integers(0, size - 1))
    late = data.draw(st.sampled_from([3_000.0, 10_000.0]))
    skew = {rank: data.draw(st.floats(-1e6, 1e6)) for rank in range(size)}
    analysis = analysis_of(
        Imagined(size=size, between=between, late={slow: late}, skew=skew, say_last=not by_clock)
    )
    caused = analysis.caused()
    assert next(iter(caused)) == slow
    assert caused[slow] == pytest.approx(10 * late, rel=0.05)
    assert analysis.waits[slow].get(slow, 0.0) == 0
    shares = [analysis.share(what) for what in ("compute", "wait", "communication")]
    assert sum(shares) == pytest.approx(1) and min(shares) >= 0


def test_clocks_do_not_matter():
    """A rank whose clock is an hour ahead, and says so, changes nothing."""
    plain = analysis_of(Imagined(late={1: 2_000.0}))
    skewed = analysis_of(Imagined(late={1: 2_000.0}, skew={1: 3.6e9, 2: -50.0}))
    assert skewed.waits == plain.waits and skewed.window == plain.window


def test_tensors_and_parts():
    analysis = analysis_of(Imagined(tensors=2, late={0: 1_000.0}))
    first = analysis.tensors[0]
    assert (first.name, first.count, first.bytes, first.moving) == ("grad.0", 10, 1 << 20, 10_000.0)
    assert first.waited == pytest.approx(10 * 1_000 * 3 / 4)
    assert analysis.parts == {"WIRE": 20_000.0}
    assert [(one.least, one.number) for one in analysis.sizes] == [(1 << 20, 20)]
    assert analysis.sizes[0].bandwidth == pytest.approx((1 << 20) / 1e-3)


@pytest.mark.parametrize("seconds, slowdown", [(0.001, 1.0), (0.0001, 10.0)])
def test_against_what_was_measured(seconds, slowdown):
    measured = Measured(4, ["a"], [(4, 1e-5), (1 << 20, seconds)])
    assert analysis_of(Imagined(), measured).slowdown == pytest.approx(slowdown)
    assert analysis_of(Imagined()).slowdown is None


def test_ranks_without_files_are_counted_once():
    """What the coordinator saw of rank 1 and 2: overlapping tensors are one wait."""
    analysis = analysis_of(Imagined(size=1))
    analysis.job.traces[0].others = [(1, 0, 100, 2), (1, 50, 150, 2), (1, 140, 160, 3), (2, 100, 100, 2)]
    assert analyse(analysis.job).waits == {0: {}, 1: {2: 150, 3: 10}}


def test_no_collectives():
    with pytest.raises(ValueError, match="no collectives"):
        analyse(Job([Trace(0, 1, "a")], []))
