# SPDX-License-Identifier: Apache-2.0
"""Sentences: each problem is planted, and must be the first thing said."""

from __future__ import annotations

import dataclasses

import pytest
from timelines import Imagined
from traces_of import analysis_of

from horovod.runner.measured import Measured
from horovod.runner.report.findings import findings

QUIET = dict(moving=100.0)  # communication that is not worth a sentence
NODES = ("node1", "node7")
TURNS = {step: {step % 4: 5_000.0} for step in range(10)}
FAST = Measured(4, ["node1"], [(4, 1e-5), (1 << 20, 1e-4)])

NODE7 = {step: {2 + step % 2: 5_000.0} for step in range(10)}
SMALL = Imagined(steps=50, nbytes=100, moving=300.0, between=290.0, tensors=30)
PLANTED = [
    (
        Imagined(late={3: 9_000.0}, hosts=NODES, **QUIET),
        "Rank 3 on node7 made the others wait 49 %",
        "data loader",
    ),
    (Imagined(slow={1: 3_000.0}, **QUIET), "Rank 1 on node1 made", "fell behind within the steps"),
    (Imagined(late_in={0: {2: 90_000.0}}, **QUIET), "Rank 2 on node1 made", "was in the first step"),
    (Imagined(late_in=NODE7, hosts=NODES, **QUIET), "The 2 ranks of node7 made", "node7 itself"),
    (Imagined(late_in=TURNS, **QUIET), "took turns in being the last", "bucket by length"),
    (Imagined(moving=5_000.0), "Ranks did nothing but communicate 62 %", "backward_passes_per_step"),
    (SMALL, "1500 of 1500 allreduces moved less than 64 KiB each (100 B", "grouped_allreduce"),
]


@pytest.mark.parametrize("job, what, advice", PLANTED, ids=[row[1] for row in PLANTED])
def test_a_planted_problem_comes_first(job, what, advice):
    found = findings(analysis_of(job))
    assert what in found[0].what and advice in found[0].advice
    assert [one.weight for one in found] == sorted((one.weight for one in found), reverse=True)


def test_no_overlap():
    """All tensors at once, at the end; a job that submits them early is not told so.

    That it does shows only once: where the first tensor had to wait for rank 1.
    """
    late = analysis_of(Imagined(moving=1_500.0))
    early = analysis_of(Imagined(moving=1_500.0, between=3_000.0, late_in={0: {1: 5_000.0}}))
    assert any("Only 0 % of the communication" in one.what for one in findings(late))
    assert not any("behind compute" in one.what for one in findings(early))
    assert 0.5 < early.overlap < 0.7  # two of three tensors


def test_slower_than_checked():
    said = [one.what for one in findings(analysis_of(Imagined(), FAST))]
    assert any(
        "took 10.0 times as long as horovodrun --check" in one and "1 MiB at 10.49 GB/s" in one
        for one in said
    )
    smaller = dataclasses.replace(FAST, ranks=2)
    said = [one.what for one in findings(analysis_of(Imagined(), smaller))]
    assert any("(with 2 ranks, not 4)" in one for one in said)


def test_one_large_tensor():
    analysis = analysis_of(Imagined(tensors=5, moving=400.0))
    analysis.tensors[0].moving *= 9
    assert any("grad.0 alone (1 MiB, 10 times) took 69 %" in one.what for one in findings(analysis))


def test_copies():
    analysis = analysis_of(Imagined(moving=2_000.0))
    analysis.parts["PACK"] = 50_000.0
    assert any(
        one.what == "Copying into and out of buffers took 83 % of the communication."
        for one in findings(analysis)
    )


def test_unknown_culprits():
    job = Imagined(size=1, steps=5, **QUIET)
    analysis = analysis_of(job)
    analysis.waits = {0: {-1: 20_000.0}}
    analysis.spendings[0].wait = 20_000.0
    assert "does not say for whom" in findings(analysis)[0].what


def test_all_is_well():
    (only,) = findings(analysis_of(Imagined(**QUIET)))
    assert only.what.startswith("Nothing stands out: ranks computed 97 % of the time, waited 0 %")


def test_a_start_without_steps():
    """Without steps, being late once at the start is still named."""
    analysis = analysis_of(Imagined(steps=2, late_in={0: {1: 50_000.0}}, marked=False, **QUIET))
    assert "Rank 1" in findings(analysis)[0].what
