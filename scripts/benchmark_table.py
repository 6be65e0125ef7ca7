#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the last `make bench` into README.md and docs/tuning.md, between their benchmarks marks.

python -m benchmarks.run --docs             measures; writes out/benchmarks/*.json and docs/images/*.png
python scripts/benchmark_table.py           writes the tables
python scripts/benchmark_table.py FILE      from another allreduce.json
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, List

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PLOT = "docs/images/benchmark_allreduce.png"
NAMES = {
    "horovod": "this package",
    "gloo": "Gloo",
    "openmpi": "Open MPI",
    "mpich": "MPICH",
    "memcpy": "one memcpy",
}
BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"
SIZES = ["4", "1024", "65536", "1048576", "16777216", "134217728"]  # those that were measured are shown


def bytes_text(size: int) -> str:
    """4 B, 64 KiB, 1 MiB"""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def time_text(us: float) -> str:
    """3.1 µs, 4.52 ms"""
    return f"{us:.1f} µs" if us < 1000 else f"{us / 1000:.2f} ms"


def table(result: Dict[str, Any]) -> List[str]:
    """Medians, and beside those of the others how many times ours they are."""
    found = {name for rows in result.values() for row in rows.values() for name in row}
    columns = [name for name in NAMES if name in found]
    lines = [
        "| ranks | bytes | " + " | ".join(NAMES[name] for name in columns) + " |",
        "|---|---|" + "---|" * len(columns),
    ]
    for ranks, rows in result.items():
        for size in [s for s in SIZES if s in rows] or list(rows):
            row = rows[size]
            ours = row.get("horovod", {}).get("median_us")
            cells = []
            for name in columns:
                value = row.get(name, {}).get("median_us")
                compared = value and ours and name not in ("horovod", "memcpy")
                ratio = f" ({value / ours:.1f} x)" if compared else ""
                cells.append(time_text(value) + ratio if value else "–")
            lines.append(f"| {ranks} | {bytes_text(int(size))} | " + " | ".join(cells) + " |")
    return lines


def section(data: Dict[str, Any], folder: str) -> str:
    """The text between the marks of a document in that folder."""
    about = data["machine"]
    lines = [
        f"Allreduce on one host ({about['cpu']}, {about['cores']} cores): medians, and how many times ours.",
        "",
        *table(data["result"]),
    ]
    if os.path.exists(os.path.join(ROOT, PLOT)):
        lines += ["", f"![time against size]({os.path.relpath(os.path.join(ROOT, PLOT), folder)})"]
    return "\n".join(lines)


def main() -> int:
    """The command line."""
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "out", "benchmarks", "allreduce.json")
    with open(path) as file:
        data = json.load(file)
    for name in ("README.md", "docs/tuning.md"):
        target = os.path.join(ROOT, name)
        with open(target, encoding="utf-8") as file:
            text = file.read()
        before, rest = text.split(BEGIN)
        after = rest.split(END)[1]
        with open(target, "w", encoding="utf-8") as file:
            file.write(f"{before}{BEGIN}\n{section(data, os.path.dirname(target))}\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
