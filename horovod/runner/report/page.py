# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML page that needs nothing else: no script, no network."""

from __future__ import annotations

from html import escape
from typing import Iterable, List, Sequence

from horovod.runner.report import svg
from horovod.runner.report.analysis import Analysis
from horovod.runner.report.figures import (
    bandwidth_points,
    culprit_rows,
    decades,
    most_involved,
    rank_rows,
    step_rows,
    who,
)  # fmt: skip
from horovod.runner.report.findings import Finding
from horovod.runner.report.style import STYLE
from horovod.runner.report.units import bytes_text, percent, rate_text, time_text

_TENSORS = 20  # as many of the slowest as people read


def page(analysis: Analysis, found: Sequence[Finding]) -> str:
    """The whole page."""
    sections = [
        _head(analysis), _findings(analysis, found), _shares(analysis), _waits(analysis), _steps(analysis),
        _tensors(analysis), _fusion(analysis), _bandwidth(analysis), _parts(analysis),
    ]  # fmt: skip
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Horovod report</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(filter(None, sections)) + "\n</body></html>\n"
    )  # fmt: skip


def _head(analysis: Analysis) -> str:
    job = analysis.job
    hosts = {trace.host for trace in job.traces if trace.host}
    facts = [
        f"{job.size} ranks" + (f" on {len(hosts)} hosts" if len(hosts) > 1 else ""),
        f"{time_text(analysis.window)} of collectives",
        f"{len(analysis.steps)} steps ({analysis.steps_found})" if analysis.steps else "no steps found",
        f"{sum(row.count for row in analysis.tensors)} operations on {len(analysis.tensors)} tensors",
    ]
    return f"<h1>Horovod report</h1>\n<p>{escape(' · '.join(facts))}</p>"


def _findings(analysis: Analysis, found: Sequence[Finding]) -> str:
    items = [f"<li><b>{escape(one.what)}</b> {escape(one.advice)}</li>" for one in found]
    notes = [f'<p class="note">{escape(note)}</p>' for note in analysis.job.notes]
    return _section("What to do", f'<ol class="findings">{"".join(items)}</ol>{"".join(notes)}')


def _shares(analysis: Analysis) -> str:
    whole = [
        ("compute", analysis.share("compute")),
        ("wait", analysis.share("wait")),
        ("communication", analysis.share("communication")),
    ]
    rows = [("all ranks", whole), *rank_rows(analysis)]
    hidden = percent(analysis.overlap)
    return _section(
        "Where the time went",
        _legend([kind for kind, _ in whole])
        + svg.stacked_bars(rows)
        + "<p>compute: the script's own time. communication: what would be left of the rest if all ranks had "
        "been ready when this one was. wait: the difference, which is the fault of ranks that came later. "
        f"{hidden} of the communication was hidden behind compute, and is part of that.</p>",
    )


def _waits(analysis: Analysis) -> str:
    waiters, culprits = most_involved(analysis)
    if not culprits:
        return ""
    most = max(analysis.waits[waiter].get(culprit, 0.0) for waiter in waiters for culprit in culprits) or 1.0
    head = _row(["waits for &rarr;", *(escape(who(one)) for one in culprits)], "th")
    body = []
    for waiter in waiters:
        cells = [f"<th>{escape(analysis.job.label(waiter))}</th>"]
        for culprit in culprits:
            time = analysis.waits[waiter].get(culprit, 0.0)
            shown = percent(time / analysis.window) if time else ""
            cells.append(f'<td style="--heat:{time / most:.3f}" title="{time_text(time)}">{shown}</td>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    note = "" if len(analysis.waits) <= len(waiters) else f"<p>The {len(waiters)} ranks that waited most.</p>"
    table = f'<div class="wide"><table class="heat">{head}{"".join(body)}</table></div>'
    return _section("Who keeps whom waiting", f"<p>In percent of the whole time.</p>{table}{note}")


def _steps(analysis: Analysis) -> str:
    if not analysis.steps:
        return ""
    rows = step_rows(analysis.steps)
    worst = sorted(analysis.steps, key=lambda step: -step.wait)[:5]
    table = [_row(["step", "length", "wait", "for whom"], "th")]
    for step in worst:
        blamed = max(step.culprits, key=lambda rank: step.culprits[rank]) if step.culprits else None
        name = "" if blamed is None else who(blamed)
        cells = [str(step.number), time_text(step.length), time_text(step.wait), name]
        table.append(_row(cells))
    return _section(
        "Step by step",
        _legend(["compute", "wait", "communication"]) + svg.columns(rows, "ms") + _culprits(analysis)
        + f"<h3>Steps with the longest waits</h3><table>{''.join(table)}</table>",
    )  # fmt: skip


def _culprits(analysis: Analysis) -> str:
    rows = culprit_rows(analysis)
    return f"<h3>Who was waited for in each step</h3>{svg.heat(rows)}" if rows else ""


def _tensors(analysis: Analysis) -> str:
    table = [_row(["tensor", "operation", "bytes", "times", "moving", "waited for"], "th")]
    for row in analysis.tensors[:_TENSORS]:
        cells = [row.name, row.kind.lower(), bytes_text(row.bytes), str(row.count)]
        table.append(_row([*map(escape, cells), time_text(row.moving), time_text(row.waited)]))
    left = len(analysis.tensors) - _TENSORS
    note = f"<p>and {left} others</p>" if left > 0 else ""
    return _section("The slowest tensors", f'<div class="wide"><table>{"".join(table)}</table></div>{note}')


def _fusion(analysis: Analysis) -> str:
    if not analysis.batches:
        return ""
    tensors = sum(len(one.names) for one in analysis.batches)
    count = len(analysis.batches)
    mean = sum(one.bytes for one in analysis.batches) / count
    text = (
        f"{tensors} tensors were moved in {count} batches: {tensors / count:.1f} tensors and "
        f"{bytes_text(mean)} each. {percent(analysis.overlap)} of the time they took was hidden behind "
        "compute."
    )
    return _section("Fusion and overlap", f"<p>{text}</p>")


def _bandwidth(analysis: Analysis) -> str:
    lines = bandwidth_points(analysis)
    if not lines:
        return ""
    xs = [x for _, points in lines for x, _ in points]
    ys = [y for _, points in lines for _, y in points]
    x_labels = [(x, bytes_text(x)) for x in decades(xs, 16)]
    y_labels = [(y, rate_text(y)) for y in decades(ys, 10)]
    table = [_row(["batches of at least", "number", "bandwidth"], "th")]
    for one in analysis.sizes:
        table.append(_row([bytes_text(one.least), str(one.number), rate_text(one.bandwidth)]))
    compared = ""
    if analysis.slowdown is not None:
        compared = f"<p>Allreduces took {analysis.slowdown:.1f} times what horovodrun --check measured.</p>"
    return _section(
        "Bandwidth by size",
        _legend([kind for kind, _ in lines]) + svg.curves(lines, x_labels, y_labels) + compared
        + f"<table>{''.join(table)}</table>",
    )  # fmt: skip


def _parts(analysis: Analysis) -> str:
    if not analysis.parts:
        return ""
    table = [_row(["phase", "time on a rank", "of the whole"], "th")]
    for name, time in sorted(analysis.parts.items(), key=lambda one: -one[1]):
        table.append(_row([escape(name), time_text(time), percent(time / analysis.window)]))
    return _section("Phases of the operations", f"<table>{''.join(table)}</table>")


def _section(title: str, body: str) -> str:
    return f"<section><h2>{title}</h2>{body}</section>"


def _legend(kinds: Iterable[str]) -> str:
    items: List[str] = [f'<span class="key {kind}"></span>{kind}' for kind in kinds]
    return f'<p class="legend">{" ".join(items)}</p>'


def _row(cells: Sequence[str], tag: str = "td") -> str:
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"
