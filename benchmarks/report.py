# SPDX-License-Identifier: Apache-2.0
"""Writes a run into README.md and docs/tuning.md, between their benchmark markers, and draws its pictures.

    python -m benchmarks.report RUN [--merge OTHER ...]     RUN and OTHER: files or commits

What RUN has not measured and OTHER has (16 ranks on a machine with 16 cores, say) is shown with OTHER's
machine beside it, or as of an earlier run if that is the same. Rows that lose are shown like the others.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from benchmarks import machine, plot, store, table
from benchmarks.environments import ROOT
from benchmarks.goals import REACHED, UNKNOWN, judge
from benchmarks.rows import OURS, Row, ratio
from benchmarks.store import Run
from benchmarks.units import size_text, time_text

BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"
PICTURE = "assets/benchmark_allreduce.png"
NAMES = {
    "horovod": "this package",
    "gloo": "Gloo",
    "openmpi": "Open MPI",
    "mpich": "MPICH",
    "memcpy": "memcpy",
    "iperf3": "iperf3",
}
SHOWN = (4, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 128 << 20)


def merge(run: Run, others: Sequence[Run]) -> Run:
    """The run, with rows of others where it has none."""
    merged = list(run.rows)
    for other in others:
        where = machine.text(other.about["machine"])
        if where == machine.text(run.about["machine"]):
            where = "earlier run"
        for row in other.rows:
            if row.ours is None:
                continue
            known = next((i for i, mine in enumerate(merged) if mine.name == row.name), None)
            if known is None:
                merged.append(replace(row, machine=row.machine or where))
            elif merged[known].ours is None:
                merged[known] = replace(row, machine=row.machine or where)
    return Run(run.about, merged)


def allreduce_table(rows: Sequence[Row]) -> str:
    """Markdown: where, bytes, then a column for each contender with its time and its ratio to ours."""
    shown = [
        row for row in rows
        if row.at.get("bytes") in SHOWN and not row.at.get("gbit") and (row.ours or row.not_run)
    ]  # fmt: skip
    shown.sort(key=lambda row: (row.at.get("hosts", 0), row.at["ranks"], row.at["bytes"]))
    names = [name for name in NAMES if any(name in row.times for row in shown)]
    lines = [
        "| | size | " + " | ".join(NAMES[name] for name in names) + " |", "|---|---:|" + "---:|" * len(names)
    ]  # fmt: skip
    for row in shown:
        cells = [_cell(row, name) for name in names]
        if row.ours is None:
            cells[0] = f"not run: {_reason(row)}"
        lines.append(f"| {_where(row)} | {size_text(row.at['bytes'])} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _where(row: Row) -> str:
    ranks = row.at["ranks"]
    where = f"2 hosts x {ranks}" if row.at.get("hosts") else f"{ranks} rank{'s' if ranks > 1 else ''}"
    return f"{where} ({row.machine})" if row.machine else where


def _cell(row: Row, name: str) -> str:
    times = row.times.get(name)
    if times is None:
        return "–"
    text = time_text(times.median)
    if name == OURS or row.ours is None:
        return text
    return f"{text} ({1 / ratio(row.ours, times).median:.1f}x)"


def _reason(row: Row) -> str:
    return table.one_line(row.not_run).replace("|", "/")


def goals_table(rows: Sequence[Row]) -> str:
    """Markdown: every row with something to reach, and how it stands."""
    lines = ["| work | this package | p99 | reach | ratio | |", "|---|---:|---:|---|---:|---|"]
    for row in rows:
        for number, judgement in enumerate(judge(row)):
            head = ["", "", ""]
            if number == 0:
                head[0] = f"{row.name} ({row.machine})" if row.machine else row.name
                if row.ours:
                    head[1:] = [time_text(row.ours.median), time_text(row.ours.p99)]
            if judgement.verdict == UNKNOWN:
                tail = ["–", f"not run: {table.one_line(judgement.reason).replace('|', '/')}"]
            else:
                mark = "~" if judgement.within_noise else ""
                word = "**reached**" if judgement.verdict == REACHED else "not yet"
                tail = [f"{judgement.ratio.median:.2f}", mark + word]
            lines.append("| " + " | ".join([*head, str(judgement.reach), *tail]) + " |")
    return "\n".join(lines)


def others_table(rows: Sequence[Row]) -> str:
    """Markdown: what was measured besides."""
    lines = ["| work | this package | beside |", "|---|---:|---|"]
    for row in rows:
        if judge(row) or row.ours is None or row.at.get("bytes") in SHOWN:
            continue
        beside = ", ".join(
            f"{NAMES.get(name, name)} {time_text(times.median)}"
            for name, times in row.times.items() if name != OURS
        )  # fmt: skip
        lines.append(f"| {row.name} | {time_text(row.ours.median)} | {beside or '–'} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def introduction(about: Dict[str, Any]) -> str:
    """What the numbers are."""
    where = machine.text(about["machine"])
    if about.get("realtime"):
        where += ", real-time priority for all where ranks have a core each"
    noise = about["noise"]
    text = (
        f"A blocking in-place allreduce of float32 through `horovod.numpy` ({where}): medians of one run, "
        "contenders in turns. In brackets: how many times as long as this package. 2 hosts are network "
        "namespaces on the same machine; iperf3 has as many streams as a host has ranks."
    )
    if noise["others"] + noise["steal"] > table.BUSY:
        taken = noise["others"] + noise["steal"]
        text += f" The machine did other work too ({taken:.0%} of its cores): read ratios, not times."
    if noise.get("apart") is not None:
        text += f" A cache line took {noise['apart']:.0f} ns from core to core and back."
    return text


def verdict_counts(rows: Sequence[Row]) -> str:
    """12 of 40 goals reached, 3 not run"""
    verdicts = [judgement.verdict for row in rows for judgement in judge(row)]
    unknown = verdicts.count(UNKNOWN)
    text = f"{verdicts.count(REACHED)} of {len(verdicts)} goals reached"
    return text + (f", {unknown} not run" if unknown else "")


def brief(run: Run, picture: str, more: str) -> str:
    """For README.md."""
    plot_line = f"![Time of an allreduce against its size]({picture})"
    return "\n\n".join(
        [
            introduction(run.about),
            allreduce_table(run.rows),
            plot_line,
            f"[All rows and what each is to reach]({more}): {verdict_counts(run.rows)}.",
        ]
    )


def full(run: Run, picture: str) -> str:
    """For docs/tuning.md."""
    legend = (
        f"What is to be reached, the rows that do not included ({verdict_counts(run.rows)}). The ratio is "
        "what was measured to what is allowed: 1 or less is reached. `~` marks a verdict that half of the "
        "turns may contradict."
    )
    parts = [
        introduction(run.about),
        allreduce_table(run.rows),
        f"![Time of an allreduce against its size]({picture})",
        legend,
        goals_table(run.rows),
    ]
    besides = others_table(run.rows)
    if besides:
        parts += ["Also measured:", besides]
    return "\n\n".join(parts)


def replace_between_markers(path: Path, body: str) -> None:
    """Puts the text between the markers of a document; one without markers is left alone."""
    before = path.read_text()
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    path.write_text(pattern.sub(lambda _: f"{BEGIN}\n{body}\n{END}", before))


def write(run: Run, root: Path = ROOT) -> None:
    """Renews both documents and the pictures."""
    replace_between_markers(root / "README.md", brief(run, f"docs/{PICTURE}", "docs/tuning.md#benchmarks"))
    replace_between_markers(root / "docs" / "tuning.md", full(run, PICTURE))
    plot.pictures(run, root / "docs" / "assets", ("allreduce", "coordinator"))  # those that pages show


def main(arguments: Optional[List[str]] = None) -> int:
    """Writes a stored run into the documents."""
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=summary)
    parser.add_argument("run", help="a run's file, or a commit that has one")
    parser.add_argument("--merge", nargs="*", default=[], metavar="OTHER", help="runs of other machines")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree whose documents are renewed")
    chosen = parser.parse_args(arguments)
    try:
        run = merge(store.find(chosen.run), [store.find(other) for other in chosen.merge])
    except ValueError as error:
        print(f"benchmarks.report: {error}", file=sys.stderr)
        return 1
    write(run, chosen.root)
    print(f"README.md, docs/tuning.md and docs/assets now show {run.label}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
