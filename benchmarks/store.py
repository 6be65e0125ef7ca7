# SPDX-License-Identifier: Apache-2.0
"""Runs as JSON files, one each, under out/benchmarks: 20261115T122300Z-208406d1c2a3-dirty-quick.json"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, List

from benchmarks import goals, machine, rows
from benchmarks.environments import ROOT
from benchmarks.rows import Row

FOLDER = ROOT / "out" / "benchmarks"
FORMAT = 2


@dataclass
class Run:
    """Everything one `make bench` found."""

    about: Dict[str, Any]  # date, quick, machine, sources, noise
    rows: List[Row] = field(default_factory=list)

    @property
    def commit(self) -> str:
        """In full."""
        return str(self.about["sources"]["commit"])

    @property
    def label(self) -> str:
        """208406d1c2a3 (dirty), quick, 2026-11-15 12:23"""
        dirty = " (dirty)" if self.about["sources"]["dirty"] else ""
        quick = ", quick" if self.about.get("quick") else ""
        return f"{self.commit[:12]}{dirty}{quick}, {self.about['date'][:16].replace('T', ' ')}"


def now() -> str:
    """The date of a run, e.g. 2026-11-15T12:23:00+00:00."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def save(run: Run, folder: Path = FOLDER) -> Path:
    """Writes a run and says where."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = datetime.fromisoformat(run.about["date"]).strftime("%Y%m%dT%H%M%SZ")
    words = [stamp, run.commit[:12]]
    words += ["dirty"] if run.about["sources"]["dirty"] else []
    words += ["quick"] if run.about.get("quick") else []
    path = folder / ("-".join(words) + ".json")
    verdicts = {row.name: [j.verdict for j in goals.judge(row)] for row in run.rows}
    data = {
        "format": FORMAT,
        "about": run.about,
        "rows": [{**rows.as_json(row), "verdicts": verdicts[row.name]} for row in run.rows],
    }
    path.write_text(json.dumps(data, indent=1) + "\n")
    return path


def load(path: Path) -> Run:
    """Reads a run."""
    data = json.loads(path.read_text())
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"{path} is not a run of this benchmark (format {FORMAT})")
    return Run(data["about"], [rows.from_json(row) for row in data["rows"]])


def stored(folder: Path = FOLDER) -> List[Path]:
    """The files of all runs, oldest first."""
    return sorted(folder.glob("[0-9]*T[0-9]*Z-*.json"))


def find(what: str, folder: Path = FOLDER) -> Run:
    """The run in a file, or all runs of a commit: the newest that has a row gives it.

    Runs of the sources as they were committed count before those of changed ones.
    """
    if Path(what).is_file():
        return load(Path(what))
    commit = (machine.commit_of(what) or what)[:12]
    paths = [path for path in stored(folder) if path.name.split("-")[1].split(".")[0] == commit]
    clean = [path for path in paths if "-dirty" not in path.name]
    if paths:
        return _together([load(path) for path in clean or paths])
    known = ", ".join(path.name for path in stored(folder)[-5:]) or "none"
    raise ValueError(f"{what} is no file, and {folder} has no run of such a commit; the last are {known}")


def _together(runs: List[Run]) -> Run:
    """Runs of the same sources as one, oldest first."""
    found: Dict[str, Row] = {}
    for run in runs:
        for row in run.rows:
            if row.name not in found or row.ours is not None or found[row.name].ours is None:
                found[row.name] = row
    return Run(runs[-1].about, list(found.values()))
