# SPDX-License-Identifier: Apache-2.0
"""Every benchmark runs, in short, and together they answer every goal. Nothing here looks at a time.

To be short, contenders that take long to start are left out where others of their kind are measured.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping

import pytest

from benchmarks import run, wires
from benchmarks.bench import Bench, Job
from benchmarks.cases import CASES, allreduce, four_hosts, many_tensors, two_hosts
from benchmarks.goals import GOALS
from benchmarks.rows import Row
from benchmarks.starting import Teams

SLOW_TO_START = ("gloo", "gloo buckets", "openmpi", "mpich", "jax io_callback")
NOT_HERE = ("coordinator",)  # the C++ tests build and run it


class Short(Bench):
    """One turn of few repetitions on small buffers."""

    def compare(self, row: str, ranks: int, jobs: Mapping[str, Job], times: int = 1) -> Row:
        small = {"reps": 1, "inner": 2, "bytes": 4096}
        kept: Dict[str, Job] = {}
        for shown, job in jobs.items():
            if job.contender not in SLOW_TO_START:
                less = {key: small.get(key, value) for key, value in job.arguments.items()}
                kept[shown] = job._replace(arguments=less)
        return super().compare(row, ranks, kept)


@pytest.fixture(scope="module")
def rows(module_monkeypatch: pytest.MonkeyPatch) -> Iterator[List[Row]]:
    module_monkeypatch.setattr(two_hosts, "CONTENDERS", ("horovod",))
    with Teams() as teams:
        bench = Short(teams, quick=True, rounds=1)
        found: List[Row] = []
        run.measure([name for name in CASES if name not in NOT_HERE], bench, found)
        yield found


@pytest.fixture(scope="module")
def module_monkeypatch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def test_every_goal_has_a_row(rows: List[Row]) -> None:
    assert set(GOALS) <= {row.name for row in rows}


def test_every_row_was_measured_or_says_why_not(rows: List[Row]) -> None:
    excused = {
        "allreduce 4 B, 16 ranks": "needs 16 cores",
        "barrier, 16 ranks": "needs 16 cores",
        "two hosts": wires.why_not(),
        "four hosts": wires.why_not(),
    }
    for row in rows:
        if row.ours is not None:
            assert row.ours.median > 0 and row.ours.samples > 0, row
            continue
        reason = next((why for start, why in excused.items() if row.name.startswith(start)), None)
        assert reason is not None and reason in row.not_run, f"{row.name}: {row.not_run}"


def test_rows_have_the_contenders_they_are_judged_by(rows: List[Row]) -> None:
    left_out = {"openmpi", "mpich", "gloo"}
    for row in rows:
        needed = {reach.of for reach in GOALS.get(row.name, []) if reach.of} - left_out
        if row.ours is not None:
            assert needed <= set(row.times), row


def test_resnet50_has_161_gradients() -> None:
    shapes = many_tensors.resnet50_shapes()
    assert len(shapes) == 161
    assert sum(prod(shape) for shape in shapes) == 25_557_032


def test_a_ring_sends_its_bytes_almost_twice() -> None:
    assert four_hosts.ring_limit(1000, 2, 100.0) == 10.0
    assert four_hosts.ring_limit(1000, 4, 100.0) == 15.0


def test_16_ranks_need_16_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: List[int] = []

    def compare(self: Bench, row: str, ranks: int, jobs: Any, times: int = 1) -> Row:
        asked.append(ranks)
        return Row(row)

    monkeypatch.setattr(Bench, "compare", compare)
    monkeypatch.setattr(allreduce, "cores", lambda: 16)
    names = [row.name for row in allreduce.run(Bench(Teams(), quick=True))]
    assert 16 in asked and "allreduce 4 B, 16 ranks" in names and "barrier, 16 ranks" in names


def test_hosts_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wires.os, "geteuid", lambda: 1000)
    for case in (two_hosts, four_hosts):
        found = list(case.run(Bench(Teams(), quick=True)))
        assert found and all("root" in row.not_run for row in found)


# ------------------------------------------------------------------------------------- command line --


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["speed"])
    assert "no benchmark called speed" in capsys.readouterr().err


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in [*CASES, *GOALS])


def test_an_interrupted_run_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(bench: Bench) -> Iterator[Row]:
        yield Row("allreduce 4 B, 16 ranks", not_run="needs 16 cores")
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "CASES", {"first": interrupted, "second": interrupted})
    with pytest.raises(KeyboardInterrupt):
        run.main(["--out", str(tmp_path)])
    (path,) = tmp_path.glob("*.json")
    data = json.loads(path.read_text())
    assert data["about"]["interrupted"] is True and data["rows"][0]["not_run"] == "needs 16 cores"
    assert data["rows"][1]["not_run"] == "the run was interrupted"


def test_a_run_is_stored_with_what_broke(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fine(bench: Bench) -> Iterator[Row]:
        yield Row("allreduce 4 B, 16 ranks", not_run="needs 16 cores")

    def breaks(bench: Bench) -> Iterator[Row]:
        yield Row("something else", not_run="no reason")
        raise OSError("the wire is cut")

    monkeypatch.setattr(run, "CASES", {"fine": fine, "breaks": breaks})
    assert run.main(["--out", str(tmp_path), "--quick"]) == 1
    (path,) = tmp_path.glob("*-quick.json")
    data = json.loads(path.read_text())
    assert data["about"]["sources"]["commit"] in path.read_text() and "dirty" in data["about"]["sources"]
    assert data["about"]["machine"]["cores"] >= 1 and "others" in data["about"]["noise"]
    by_name = {row["name"]: row for row in data["rows"]}
    assert by_name["allreduce 4 B, 16 ranks"]["verdicts"] == ["-", "-"]
    assert "the wire is cut" in by_name["breaks (the benchmark itself)"]["not_run"]
    assert set(GOALS) <= set(by_name)  # what nobody measured keeps its place
    assert "no benchmark gave this row" in capsys.readouterr().out
