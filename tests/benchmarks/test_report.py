# SPDX-License-Identifier: Apache-2.0
"""The documents: tables between their markers, losing rows and other machines included, and pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark_samples import row, run, times

from benchmarks import plot, report, store
from benchmarks.rows import Row
from benchmarks.store import Run


def sample() -> Run:
    small = row("allreduce 4 B, 2 ranks", horovod=20, gloo=250, openmpi=2.5, memcpy=1)
    large = row("allreduce 1 MiB, 2 ranks", horovod=200, gloo=2500, openmpi=250, mpich=260, memcpy=90)
    hosts = row("two hosts, 4 B, 1 rank a host", horovod=100, gloo=200, openmpi=15)
    far = row("two hosts, 64 MiB, 1 rank a host", horovod=9e4, gloo=1e5, openmpi=1e5, iperf3=5e4)
    small.at, large.at = {"ranks": 2, "bytes": 4}, {"ranks": 2, "bytes": 1 << 20}
    hosts.at = {"hosts": 2, "ranks": 1, "bytes": 4, "gbit": 0}
    far.at = {**hosts.at, "bytes": 64 << 20}
    many = Row("allreduce 4 B, 16 ranks", not_run="needs 16 cores", at={"ranks": 16, "bytes": 4})
    besides = row("jax.jit, 4 B", horovod=30, numpy=20)
    return run(small, large, hosts, far, many, besides)


def documents(folder: Path) -> None:
    (folder / "docs").mkdir()
    for name in ("README.md", "docs/tuning.md"):
        (folder / name).write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")


def test_documents_get_their_tables_between_the_markers(tmp_path: Path) -> None:
    documents(tmp_path)
    report.write(sample(), tmp_path)
    readme, tuning = ((tmp_path / name).read_text() for name in ("README.md", "docs/tuning.md"))
    for text in (readme, tuning):
        assert text.startswith("before\n") and text.endswith(f"{report.END}\nafter\n")
        assert "old" not in text
        assert "| 2 ranks | 4 B | 20.0 us | 250.0 us (12.5x) | 2.5 us (0.1x) | – |" in text  # a losing row
        assert "| 2 hosts x 1 | 64 MiB |" in text
        assert "not run: needs 16 cores" in text
        assert "2 cores, Some CPU, Linux 6.1" in text
    assert "(docs/assets/benchmark_allreduce.png)" in readme and "(docs/tuning.md#benchmarks)" in readme
    assert "(assets/benchmark_allreduce.png)" in tuning
    assert "| allreduce 4 B, 2 ranks | 20.0 us | 40.0 us | at most 5.0 us | 4.00 | not yet |" in tuning
    assert "| jax.jit, 4 B | 30.0 us | numpy 20.0 us |" in tuning
    assert (tmp_path / "docs/assets/benchmark_allreduce.png").read_bytes().startswith(b"\x89PNG")


def test_a_busy_machine_is_admitted() -> None:
    busy = {**sample().about, "noise": {"load": 7.0, "steal": 0.1, "others": 0.3}}
    assert "(40% of its cores): read ratios, not times" in report.introduction(busy)
    assert "read ratios" not in report.introduction(sample().about)
    busy["noise"]["apart"] = 351.7
    assert "352 ns from core to core" in report.introduction(busy)
    assert "core to core" not in report.introduction(sample().about)


def test_rows_of_another_machine_fill_what_is_missing() -> None:
    sixteen = Row("allreduce 4 B, 16 ranks", times={"horovod": times(30)}, at={"ranks": 16, "bytes": 4})
    elsewhere = {"cpu": "Big CPU", "cores": 16, "kernel": "6.5.1"}
    other = run(sixteen, row("allreduce 4 B, 2 ranks", horovod=1), row("new", horovod=2), machine=elsewhere)
    merged = {r.name: r for r in report.merge(sample(), [other]).rows}
    assert merged["allreduce 4 B, 16 ranks"].machine == "16 cores, Big CPU, Linux 6.5"
    assert merged["allreduce 4 B, 2 ranks"].times["horovod"].median == 20  # its own stays
    assert merged["new"].machine
    before = run(row("allreduce 4 B, 2 ranks", horovod=1), row("new", horovod=2))
    assert {r.name: r.machine for r in report.merge(sample(), [before]).rows}["new"] == "earlier run"
    text = report.full(report.merge(sample(), [other]), "x.png")
    assert "| 16 ranks (16 cores, Big CPU, Linux 6.5) | 4 B | 30.0 us |" in text


def test_rows_of_another_machine_stand_among_their_kind() -> None:
    elsewhere = {"cpu": "Big CPU", "cores": 16, "kernel": "6.5.1"}
    at = {"ranks": 16, "bytes": 1 << 20}
    large = Row("allreduce 1 MiB, 16 ranks", times={"horovod": times(500)}, at=at)
    lines = report.allreduce_table(report.merge(sample(), [run(large, machine=elsewhere)]).rows).splitlines()
    places = [line.split("|")[1].split("(")[0].strip() for line in lines[2:]]
    assert places == ["2 ranks", "2 ranks", "16 ranks", "16 ranks", "2 hosts x 1", "2 hosts x 1"]


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents(tmp_path)
    path = store.save(sample(), tmp_path / "runs")
    assert report.main([str(path), "--merge", str(path), "--root", str(tmp_path)]) == 0
    assert "0123456789ab" in capsys.readouterr().out
    assert "this package" in (tmp_path / "README.md").read_text()
    assert report.main(["no-such-run", "--root", str(tmp_path)]) == 1


def test_pictures_of_what_there_is(tmp_path: Path) -> None:
    facts = {"ranks": 16, "hosts": 2, "tensors": 161, "messages_in": 1, "messages_out": 1}
    steps = [Row(f"{n}", "coordinator", {"horovod": times(5)}, facts={**facts, "ranks": n}) for n in (16, 32)]
    training = row("training, convolution net", horovod=100, ddp=130, local=90)
    names = [p.name for p in plot.pictures(run(*sample().rows, *steps, training), tmp_path)]
    assert names == ["benchmark_allreduce.png", "benchmark_coordinator.png", "benchmark_training.png"]
    assert plot.pictures(run(), tmp_path / "nothing") == []
