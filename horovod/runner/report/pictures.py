# SPDX-License-Identifier: Apache-2.0
"""The report's drawings as PNG files, for slides and tickets, by matplotlib (pip install horovod[report])."""

from __future__ import annotations

import os
from typing import Any, List

from horovod.runner.report.analysis import Analysis
from horovod.runner.report.figures import bandwidth_points, most_involved, rank_rows, step_rows, who

_COLOURS = {
    "compute": "#7aa874",
    "wait": "#d9534f",
    "communication": "#4a7ab5",
    "job": "#4a7ab5",
    "check": "#c58f2d",
}


class NoMatplotlib(ImportError):
    """matplotlib is not installed."""


def draw(analysis: Analysis, folder: str) -> List[str]:
    """Writes the PNG files and returns their paths.

    Raises:
        NoMatplotlib: if there is no matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NoMatplotlib("no PNG files without matplotlib; pip install horovod[report]") from error
    written = []
    for name, painter in (
        ("shares", _shares),
        ("waits", _waits),
        ("steps", _steps),
        ("bandwidth", _bandwidth),
    ):
        figure = Figure(figsize=(9, 4), layout="constrained")
        if painter(figure.subplots(), analysis):
            written.append(os.path.join(folder, f"{name}.png"))
            figure.savefig(written[-1], dpi=120)
    return written


def _shares(axes: Any, analysis: Analysis) -> bool:
    rows = rank_rows(analysis)[::-1]
    left = [0.0] * len(rows)
    for part, kind in enumerate(("compute", "wait", "communication")):
        wholes = [sum(size for _, size in parts) or 1.0 for _, parts in rows]
        widths = [100 * parts[part][1] / whole for (_, parts), whole in zip(rows, wholes)]
        axes.barh([label for label, _ in rows], widths, left=left, color=_COLOURS[kind], label=kind)
        left = [a + b for a, b in zip(left, widths)]
    axes.set_xlabel("% of the time")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.15), ncols=3, frameon=False)
    return True


def _waits(axes: Any, analysis: Analysis) -> bool:
    waiters, culprits = most_involved(analysis)
    if not culprits:
        return False
    cells = [[100 * analysis.waits[w].get(c, 0.0) / analysis.window for c in culprits] for w in waiters]
    image = axes.imshow(cells, cmap="Reds", vmin=0, aspect="auto")
    axes.set_xticks(range(len(culprits)), [who(one) for one in culprits])
    axes.set_yticks(range(len(waiters)), [analysis.job.label(one) for one in waiters])
    axes.set_xlabel("waited for")
    axes.figure.colorbar(image, label="% of the time")
    return True


def _steps(axes: Any, analysis: Analysis) -> bool:
    rows = step_rows(analysis.steps) if analysis.steps else []
    bottom = [0.0] * len(rows)
    for part, kind in enumerate(("compute", "wait", "communication")):
        heights = [parts[part][1] for _, parts in rows]
        axes.bar(range(len(rows)), heights, bottom=bottom, color=_COLOURS[kind], label=kind, width=1.0)
        bottom = [a + b for a, b in zip(bottom, heights)]
    axes.set_xlabel("steps")
    axes.set_ylabel("ms")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.15), ncols=3, frameon=False)
    return bool(rows)


def _bandwidth(axes: Any, analysis: Analysis) -> bool:
    lines = bandwidth_points(analysis)
    for kind, points in lines:
        axes.loglog(
            [x for x, _ in points], [y / 1e9 for _, y in points], "o-", color=_COLOURS[kind], label=kind
        )
    axes.set_xlabel("bytes of a batch")
    axes.set_ylabel("GB/s")
    if lines:
        axes.legend(frameon=False)
    return bool(lines)
