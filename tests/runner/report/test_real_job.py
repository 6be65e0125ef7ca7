# SPDX-License-Identifier: Apache-2.0
"""Timelines of a job that ran: the report names the rank that was slow."""

from __future__ import annotations

import json
import os
import sys

import pytest
from launching import ROOT, horovodrun

from horovod.common import timelines
from horovod.runner.report.analysis import analyse
from horovod.runner.report.reading import read_job

SLOW_RANK = os.path.join(ROOT, "tests", "runner", "scripts", "slow_rank.py")


@pytest.mark.parametrize("slow", [0, 2])
def test_the_slow_rank_is_named(tmp_path, slow):
    words = ["-np", "3", "--timeline-filename", "timeline.json", sys.executable, SLOW_RANK, str(slow)]
    done = horovodrun(*words, cwd=tmp_path, timeout=240)
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(tmp_path)) == ["timeline.json", "timeline.rank1.json", "timeline.rank2.json"]
    done = horovodrun("--report", "timeline.json", cwd=tmp_path, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"- Rank {slow} on localhost made the others wait"), done.stdout
    assert "late already for the first tensor of a step" in done.stdout.splitlines()[1]

    analysis = analyse(read_job([str(tmp_path / "timeline.json")]))
    assert analysis.job.notes == [] and analysis.job.size == 3
    assert next(iter(analysis.caused())) == slow
    assert (len(analysis.steps), analysis.steps_found) == (9, "marked")
    names = {row.name: row for row in analysis.tensors}
    assert names["allreduce.gradient.1"].count == 10 and names["allreduce.gradient.1"].bytes == 2_000_000
    _one_file_says_the_same(tmp_path, analysis)
    waits = {one.rank: one.wait for one in analysis.spendings}
    assert min(waits, key=waits.__getitem__) == slow


def _one_file_says_the_same(folder, analysis):
    """What horovod.common.timelines puts together is read as well."""
    parts = [str(folder / name) for name in os.listdir(folder) if name.startswith("timeline")]
    timelines.main([str(folder / "all.json"), *parts])
    whole = analyse(read_job([str(folder / "all.json")]))
    assert whole.window == pytest.approx(analysis.window) and whole.steps_found == "marked"
    for rank, by_culprit in analysis.waits.items():
        assert whole.waits[rank] == pytest.approx(by_culprit)


def test_after_a_kill(tmp_path):
    """What was written before the end can be read."""
    code = f"import os, runpy, sys; sys.argv = ['x', '1']; runpy.run_path({SLOW_RANK!r}); os._exit(9)"
    done = horovodrun("-np", "2", "--timeline-filename", "t.json", sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode != 0
    with open(tmp_path / "t.json", encoding="utf-8") as file:
        assert json.load(file)
    assert next(iter(analyse(read_job([str(tmp_path / "t.json")])).caused())) == 1
