# SPDX-License-Identifier: Apache-2.0
"""The benchmarks run, and their arithmetic is right. Nothing here looks at how long anything took."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path

import pytest

from benchmarks import many_tensors, plot, report, two_hosts
from benchmarks.harness import size_text, start_team, summary, take_turns, time_text
from benchmarks.run import main


def test_resnet50_has_161_gradients() -> None:
    shapes = many_tensors.resnet50_shapes()
    assert len(shapes) == 161
    assert sum(prod(shape) for shape in shapes) == 25_557_032


def test_summary_is_in_microseconds() -> None:
    s = summary([1e-6, 2e-6, 3e-6, 4e-6, 100e-6])
    assert s["median_us"] == pytest.approx(3.0)
    assert s["p25_us"] == pytest.approx(2.0)
    assert s["p75_us"] == pytest.approx(4.0)
    assert s["samples"] == 5


@pytest.mark.parametrize("size, text", [(4, "4 B"), (64 << 10, "64 KiB"), (128 << 20, "128 MiB")])
def test_sizes_as_text(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize("us, text", [(3.14, "3.1 us"), (4520, "4.52 ms"), (1.2e6, "1.20 s")])
def test_times_as_text(us: float, text: str) -> None:
    assert time_text(us) == text


def test_teams_take_turns() -> None:
    teams = {name: team for name in ("horovod", "memcpy") if (team := start_team(name, 2)) is not None}
    try:
        result = take_turns(teams, 2, "allreduce", bytes=4096, reps=2, inner=3)
        many = take_turns({"horovod": teams["horovod"]}, 1, "many", shapes=[3, 1000, 1], reps=1)
        busy = take_turns({"horovod": teams["horovod"]}, 1, "busy", bytes=64, reps=1)
    finally:
        for team in teams.values():
            team.close()
    assert set(result) == {"horovod", "memcpy"}
    assert all(s["samples"] == 4 and s["median_us"] > 0 for s in result.values())
    assert many["horovod"]["samples"] == busy["horovod"]["samples"] == 1


def test_a_team_that_cannot_start_says_why() -> None:
    with pytest.raises(RuntimeError, match="KeyError: 'nothing'"):
        start_team("nothing", 2)


def test_two_hosts_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_hosts.os, "geteuid", lambda: 1000)
    assert "root" in str(two_hosts.missing())
    assert two_hosts.run(quick=True) == {}


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["speed"])
    assert "no benchmark called speed" in capsys.readouterr().err


def test_results_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"median_us": 2.0, "p25_us": 1.0, "p75_us": 3.0, "samples": 3}
    result = {"2": {"4": {"horovod": row, "gloo": row}, "1024": {"horovod": row, "gloo": row}}}
    monkeypatch.setitem(main.__globals__["BENCHMARKS"], "allreduce", lambda quick: result)
    assert main(["allreduce", "--out", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "allreduce.json").read_text())["result"] == result
    assert (tmp_path / "benchmark_allreduce.png").read_bytes().startswith(b"\x89PNG")


def test_coordinator_picture(tmp_path: Path) -> None:
    row = {"hosts": 2, "ranks": 16, "tensors": 161, "step_us": 5.0, "messages_in": 1, "messages_out": 1}
    plot.coordinator({"rows": [row, {**row, "ranks": 32}]}, tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_documents_get_the_table_between_their_markers(tmp_path: Path) -> None:
    row = {"median_us": 20.0, "p25_us": 1.0, "p75_us": 3.0, "samples": 3}
    result = {"2": {"4": {"horovod": row, "gloo": {**row, "median_us": 250.0}, "memcpy": row}}}
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/tuning.md"):
        (tmp_path / name).write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write(result, {"cores": 2, "realtime": False, "load": 7.0}, tmp_path)
    readme = (tmp_path / "README.md").read_text()
    assert readme.startswith("before\n") and readme.endswith(f"{report.END}\nafter\n")
    assert "old" not in readme
    assert "(load 7)" in readme
    assert "| 2 | 4 B | 20.0 us | 250.0 us (12.5x) | 20.0 us |" in readme
    assert "(docs/assets/benchmark_allreduce.png)" in readme
    assert "(assets/benchmark_allreduce.png)" in (tmp_path / "docs" / "tuning.md").read_text()
