# SPDX-License-Identifier: Apache-2.0
"""Rows as text: one while it is measured, and all of them with their verdicts at the end."""

from __future__ import annotations

from typing import List, Mapping, Sequence

from benchmarks.goals import UNKNOWN, Judgement, judge
from benchmarks.noise import Noise
from benchmarks.rows import OURS, Row, Times, ratio
from benchmarks.units import time_text

WIDTH = 100
BUSY = 0.1  # of all cores, used by others or stolen: worth a mark


def spread(times: Times) -> str:
    """20.1 us [18.0 us .. 23.4 us], p99 88.2 us"""
    return (
        f"{time_text(times.median)} [{time_text(times.p25)} .. {time_text(times.p75)}], "
        f"p99 {time_text(times.p99)}"
    )


def one_line(text: str, width: int = WIDTH) -> str:
    """The last line of a reason, which in a traceback is the one that says it."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    last = lines[-1] if lines else "no reason given"
    return last if len(last) <= width else last[: width - 3] + "..."


def details(row: Row) -> str:
    """Everybody's times, with ratios to ours; who is absent and why; what else went on."""
    lines = [f"\n{row.name}"]
    ours = row.ours
    for name, times in row.times.items():
        beside = ""
        if ours is not None and name != OURS:
            beside = f"   {1 / ratio(ours, times).median:.2f}x our time"
        lines.append(f"  {name:<20} {spread(times)}{beside}")
    if row.not_run:
        lines.append(f"  not run: {one_line(row.not_run)}")
    lines += [f"  without {name}: {one_line(why)}" for name, why in row.absent.items() if name != OURS]
    if row.facts:
        lines.append("  " + ", ".join(f"{key} {value:g}" for key, value in row.facts.items()))
    for judgement in judge(row):
        lines.append(f"  {judgement.reach}: {verdict(judgement)}")
    if row.noise is not None:
        lines.append(f"  {row.noise}")
    return "\n".join(lines)


def verdict(judgement: Judgement) -> str:
    """reached (0.83 of what is allowed), not (1.20 of what is allowed, within noise)"""
    if judgement.verdict == UNKNOWN:
        return f"no verdict: {one_line(judgement.reason)}"
    noise = ", within noise" if judgement.within_noise else ""
    return f"{judgement.verdict} ({judgement.ratio.median:.2f} of what is allowed{noise})"


def verdicts(rows: Sequence[Row]) -> str:
    """The closing table: every row that has something to reach, and how it stands."""
    heads = f"{'this package':>12} {'middle half':>23} {'p99':>10}  {'reach':<45} {'ratio':>6}  verdict"
    lines = [f"{'work':<42} {heads}"]
    counts = {"reached": 0, "not": 0, UNKNOWN: 0}
    for row in rows:
        for number, judgement in enumerate(judge(row)):
            counts[judgement.verdict] += 1
            lines.append(_line(row, judgement, first=number == 0))
    lines.append(f"{counts['reached']} reached, {counts['not']} not, {counts[UNKNOWN]} without a verdict;")
    lines.append("ratio: what was measured to what is allowed; ~: half of the turns may say the opposite;")
    lines.append(f"*: others used, or the host took, more than {BUSY:.0%} of the cores meanwhile")
    return "\n".join(lines)


def _line(row: Row, judgement: Judgement, first: bool) -> str:
    ours = row.ours
    busy = "*" if row.noise is not None and is_busy(row.noise) else ""
    cells: List[str] = ["", "", "", ""]
    if first:
        cells[0] = row.name + busy
        if ours is not None:
            cells[1:] = [
                time_text(ours.median), f"{time_text(ours.p25)}..{time_text(ours.p75)}", time_text(ours.p99)
            ]  # fmt: skip
    head = f"{cells[0]:<42} {cells[1]:>12} {cells[2]:>23} {cells[3]:>10}  {str(judgement.reach):<45}"
    if judgement.verdict == UNKNOWN:
        return f"{head} {'-':>6}  {one_line(judgement.reason)}"
    mark = "~" if judgement.within_noise else ""
    return f"{head} {judgement.ratio.median:>6.2f}  {mark}{judgement.verdict}"


def is_busy(noise: Noise) -> bool:
    """Whether somebody else had a good part of the machine."""
    return noise.others + noise.steal > BUSY


def others(rows: Sequence[Row]) -> str:
    """Rows that have nothing to reach, briefly."""
    lines = []
    for row in rows:
        if not judge(row):
            ours = time_text(row.ours.median) if row.ours else f"not run: {one_line(row.not_run)}"
            lines.append(f"{row.name:<62} {ours:>12} {_beside(row.times)}")
    return "\n".join(lines)


def _beside(times: Mapping[str, Times]) -> str:
    return ", ".join(f"{name} {time_text(t.median)}" for name, t in times.items() if name != OURS)
