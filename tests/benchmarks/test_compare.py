# SPDX-License-Identifier: Apache-2.0
"""What counts as a change between two runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark_samples import ABOUT, row, run

from benchmarks import compare, machine, store
from benchmarks.compare import FASTER, MOVED, SAME, SLOWER
from benchmarks.rows import Row

NAME = "allreduce 4 B, 2 ranks"


@pytest.mark.parametrize(
    "before, after, verdict",
    [
        (20, 21, SAME),  # within the middle halves
        (20, 10, FASTER),
        (20, 40, SLOWER),
    ],
)
def test_alone(before: float, after: float, verdict: str) -> None:
    found = compare.change(NAME, row(NAME, horovod=before), row(NAME, horovod=after))
    assert found.verdict == verdict
    assert found.factor == pytest.approx(after / before)


def test_a_slower_machine_is_no_slower_row() -> None:
    before, after = row(NAME, horovod=20, openmpi=2), row(NAME, horovod=60, openmpi=6)
    found = compare.change(NAME, before, after)
    assert found.verdict == MOVED
    assert found.drift == pytest.approx(3.0)


def test_a_faster_row_on_a_slower_machine() -> None:
    before, after = row(NAME, horovod=20, openmpi=2), row(NAME, horovod=10, openmpi=4)
    assert compare.change(NAME, before, after).verdict == FASTER


def test_rows_of_one_run_are_named_with_the_reason() -> None:
    a = run(row(NAME, horovod=20), row("gone", horovod=1), Row("never", not_run="x"))
    b = run(Row(NAME, not_run="it broke"), row("new", horovod=1))
    found = {one.name: one.verdict for one in compare.changes(a, b)}
    assert found == {
        NAME: "only in A: it broke",
        "new": "only in B: no such row",
        "gone": "only in A: no such row",
    }


def test_runs_are_found_by_file_and_by_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = store.save(run(row(NAME, horovod=20), date="2026-11-14T00:00:00+00:00"), tmp_path)
    new = store.save(run(row(NAME, horovod=10), quick=True), tmp_path)
    assert store.stored(tmp_path) == [old, new]
    commit = str(ABOUT["sources"]["commit"])  # type: ignore[index]
    assert store.find(commit[:12], tmp_path).rows[0].times["horovod"].median == 10
    assert store.find(str(old), tmp_path).rows[0].times["horovod"].median == 20
    monkeypatch.setattr(machine, "commit_of", lambda name: commit if name == "some-branch" else "")
    assert store.find("some-branch", tmp_path).about["quick"] is True
    with pytest.raises(ValueError, match="no run of such a commit; the last are .*-quick.json"):
        store.find("fedcba98", tmp_path)


def test_runs_of_a_commit_are_taken_together(tmp_path: Path) -> None:
    days = [f"2026-11-1{day}T00:00:00+00:00" for day in range(5)]
    dirty = {**ABOUT["sources"], "dirty": True}  # type: ignore[dict-item]
    store.save(run(row("a", horovod=1), row("b", horovod=1), date=days[0]), tmp_path)
    store.save(run(row("b", horovod=2), Row("a", not_run="not asked for"), date=days[1]), tmp_path)
    store.save(run(row("b", horovod=3), sources=dirty, date=days[2]), tmp_path)
    found = store.find(str(ABOUT["sources"]["commit"]), tmp_path)  # type: ignore[index]
    assert {r.name: r.times["horovod"].median for r in found.rows} == {"a": 1, "b": 2}


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"rows": []}')
    with pytest.raises(ValueError, match="not a run of this benchmark"):
        store.load(path)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = store.save(run(row(NAME, horovod=20, gloo=300)), tmp_path / "a")
    b = store.save(run(row(NAME, horovod=5, gloo=310)), tmp_path / "b")
    assert compare.main([str(a), str(b)]) == 0
    text = capsys.readouterr().out
    assert "20.0 us" in text and " 0.25 " in text and "1.03  faster" in text
    assert "0 same, 0 same (the machine changed), 1 faster, 0 slower" in text
    assert compare.main(["nothing-of-that-name", str(b)]) == 1
    assert "nothing-of-that-name is no file" in capsys.readouterr().err


def test_a_run_names_its_sources() -> None:
    sources = machine.sources()
    assert sources["commit"] == machine.commit_of("HEAD")
    assert isinstance(sources["dirty"], bool)
    facts = machine.facts()
    assert facts["cores"] >= 1 and str(facts["cores"]) in machine.text(facts)
