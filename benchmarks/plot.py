# SPDX-License-Identifier: Apache-2.0
"""PNG pictures of a run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence

from benchmarks.rows import OURS, Row
from benchmarks.store import Run

COLOURS = {
    "horovod": "#c2410c",
    "gloo": "#2563eb",
    "openmpi": "#15803d",
    "mpich": "#7c3aed",
    "memcpy": "#9ca3af",
    "iperf3": "#6b7280",
    "ddp": "#2563eb",
    "local": "#9ca3af",
}


def pictures(
    run: Run, folder: Path, names: Sequence[str] = ("allreduce", "coordinator", "training")
) -> List[Path]:
    """Draws what the run has measured enough of."""
    if importlib.util.find_spec("matplotlib") is None:
        print("benchmarks: no pictures: matplotlib is not installed", file=sys.stderr)
        return []
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name in names:
        figure = {"allreduce": allreduce, "coordinator": coordinator, "training": training}[name](run.rows)
        if figure is not None:
            path = folder / f"benchmark_{name}.png"
            figure.savefig(path, dpi=130)
            drawn.append(path)
    return drawn


def panels(rows: List[Row]) -> Dict[str, List[Row]]:
    """Rows of an allreduce by where it ran, each with more than one size."""
    found: Dict[str, List[Row]] = {}
    for row in rows:
        if "bytes" not in row.at or row.ours is None or row.at.get("gbit"):
            continue
        ranks = row.at["ranks"]
        one_host = f"{ranks} ranks on one host" + (f" ({row.machine})" if row.machine else "")
        where = f"two hosts, {ranks} a host" if row.at.get("hosts") else one_host
        found.setdefault(where, []).append(row)
    # Rows of several runs come in any order.
    by_size = {where: sorted(some, key=lambda row: row.at["bytes"]) for where, some in found.items()}
    return {where: some for where, some in by_size.items() if len(some) > 1}


def allreduce(rows: List[Row]) -> Any:
    """Time against size, a panel for each place, the middle half of the samples as a band."""
    from matplotlib.figure import Figure

    found = panels(rows)
    if not found:
        return None
    across = min(2, len(found))
    down = -(-len(found) // across)
    figure = Figure(figsize=(6.2 * across, 4.3 * down))
    axes = figure.subplots(down, across, squeeze=False, sharey=True)
    for axis in axes.flat[len(found) :]:
        axis.set_visible(False)
    for axis, (where, some) in zip(axes.flat, found.items()):
        names = [name for name in COLOURS if any(name in row.times for row in some)]
        for name in names:
            points = [(row.at["bytes"], row.times[name]) for row in some if name in row.times]
            sizes = [size for size, _ in points]
            style = {"color": COLOURS[name], "lw": 2.4 if name == OURS else 1.4}
            axis.plot(sizes, [t.median for _, t in points], marker="o", ms=3.5, label=name, **style)
            low, high = [t.p25 for _, t in points], [t.p75 for _, t in points]
            axis.fill_between(sizes, low, high, color=COLOURS[name], alpha=0.15, lw=0)
        title = f"allreduce, {where}".replace(" (", "\n(")  # another machine's is long
        axis.set(xscale="log", yscale="log", title=title, xlabel="bytes")
        axis.set_ylabel("microseconds, median and middle half")
        axis.grid(True, which="major", alpha=0.3)
        axis.legend()
    figure.tight_layout()
    return figure


def coordinator(rows: List[Row]) -> Any:
    """The coordinator's time and messages as the job grows."""
    from matplotlib.figure import Figure

    some = [
        row for row in rows
        if row.benchmark == "coordinator" and row.ours and row.facts["ranks"] != row.facts["hosts"]
    ]  # fmt: skip
    if not some:
        return None
    ranks = [row.facts["ranks"] for row in some]
    figure = Figure(figsize=(6.2, 4.2))
    left = figure.subplots()
    left.plot(ranks, [row.ours.median for row in some if row.ours], marker="o", color=COLOURS[OURS])
    left.set(xscale="log", xlabel="ranks, 8 a host", ylabel="microseconds a step", ylim=(0, None))
    left.set_title(f"coordinator, {some[0].facts['tensors']:g} tensors a step")
    right = left.twinx()
    messages = [row.facts["messages_in"] + row.facts["messages_out"] for row in some]
    right.plot(ranks, messages, marker="s", ls="--", color=COLOURS["gloo"])
    right.set(ylabel="messages in and out (dashed)", ylim=(0, None))
    figure.tight_layout()
    return figure


def training(rows: List[Row]) -> Any:
    """Steps a second, by model and contender."""
    from matplotlib.figure import Figure

    some = [row for row in rows if row.name.startswith("training, ") and row.ours and "ddp" in row.times]
    if not some:
        return None
    figure = Figure(figsize=(4 * len(some), 3.2))
    axes = figure.subplots(1, len(some), squeeze=False)
    for axis, row in zip(axes[0], some):
        names = [name for name in ("local", OURS, "ddp") if name in row.times]
        rates = [1e6 / row.times[name].median for name in names]
        labels = {"local": "no communication"}
        bars = axis.bar([labels.get(n, n) for n in names], rates, color=[COLOURS[name] for name in names])
        axis.bar_label(bars, fmt="%.2f", fontsize=8)
        axis.set_title(row.name, fontsize=10)
        axis.set_ylabel("steps / s")
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure
