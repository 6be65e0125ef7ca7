# SPDX-License-Identifier: Apache-2.0
"""The allreduce table for README.md and docs/tuning.md, put between their benchmark markers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List

from benchmarks.environments import ROOT
from benchmarks.harness import size_text, time_text

BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"
NAMES = {
    "horovod": "this package",
    "gloo": "Gloo",
    "openmpi": "Open MPI",
    "mpich": "MPICH",
    "memcpy": "memcpy",
}
SHOWN = (4, 64 << 10, 1 << 20, 16 << 20, 128 << 20)


def table(result: Dict[str, Any]) -> str:
    """Markdown: ranks, bytes, then a column for each contender with its time and its ratio to ours."""
    lines: List[str] = []
    for ranks, rows in result.items():
        for size in SHOWN:
            row = rows.get(str(size))
            if row is None:
                continue
            names = [name for name in NAMES if name in row]
            if not lines:
                lines.append("| ranks | size | " + " | ".join(NAMES[name] for name in names) + " |")
                lines.append("|---:|---:|" + "---:|" * len(names))
            ours = row["horovod"]["median_us"]
            cells = [time_text(row[name]["median_us"]) for name in names]
            for i, name in enumerate(names):
                if name not in ("horovod", "memcpy"):
                    cells[i] += f" ({row[name]['median_us'] / ours:.1f}x)"
            lines.append(f"| {ranks} | {size_text(size)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def text(result: Dict[str, Any], about: Dict[str, Any], picture: str) -> str:
    """Everything between the markers."""
    where = f"on {about['cores']} cores"
    if about["realtime"]:
        where += " (with real-time priority for all where ranks have a core each)"
    notes = ["In brackets: how many times longer than this package."]
    if about["load"] > 1:
        notes.append(f"The machine did other work too (load {about['load']:.0f}): read ratios, not times.")
    return (
        f"A blocking in-place allreduce of float32 through `horovod.numpy` {where}, medians of one run. "
        f"{' '.join(notes)}\n\n{table(result)}\n\n![Time of an allreduce against its size]({picture})"
    )


def replace(path: Path, body: str) -> None:
    """Puts the text between the markers of a document; one without markers is left alone."""
    before = path.read_text()
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    path.write_text(pattern.sub(lambda _: f"{BEGIN}\n{body}\n{END}", before))


def write(result: Dict[str, Any], about: Dict[str, Any], root: Path = ROOT) -> None:
    """Updates both documents."""
    name = "assets/benchmark_allreduce.png"
    replace(root / "README.md", text(result, about, f"docs/{name}"))
    replace(root / "docs" / "tuning.md", text(result, about, name))
