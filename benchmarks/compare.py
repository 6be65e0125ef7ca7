# SPDX-License-Identifier: Apache-2.0
"""What a change did: two runs, row by row.

    python -m benchmarks.compare A B        files, commits, branches; B is the newest run by default

A row is faster or slower only if the middle halves of both runs' times lie apart and, where both measured the
same other contender in turns with us, our ratio to it moved out of its middle half too: a machine that was
slower in one of the runs was slower for everybody. Everything else is the same.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Dict, List, NamedTuple, Optional

from benchmarks import machine, store
from benchmarks.rows import OURS, Row, Times, ratio
from benchmarks.store import Run
from benchmarks.table import one_line
from benchmarks.units import time_text

SAME, FASTER, SLOWER = "same", "faster", "slower"
MOVED = "same (the machine changed)"


class Change(NamedTuple):
    """One row of two runs."""

    name: str
    before: Optional[Times]
    after: Optional[Times]
    verdict: str
    drift: Optional[float] = None  # how the other contenders' times changed, e.g. 1.3

    @property
    def factor(self) -> float:
        """Our time after over our time before."""
        assert self.before is not None and self.after is not None
        return self.after.median / self.before.median


def apart(low: float, high: float, other_low: float, other_high: float) -> bool:
    """Whether two intervals have nothing in common."""
    return high < other_low or other_high < low


def change(name: str, before: Optional[Row], after: Optional[Row]) -> Change:
    """What became of one row."""
    a, b = before.ours if before else None, after.ours if after else None
    if a is None or b is None:
        missing = before if a is None else after
        why = one_line(missing.not_run, 60) if missing is not None and missing.not_run else "no such row"
        return Change(name, a, b, f"only in {'B' if a is None else 'A'}: {why}" if a or b else "in neither")
    assert before is not None and after is not None
    common = [other for other in before.times if other != OURS and other in after.times]
    drifts = [after.times[other].median / before.times[other].median for other in common]
    drift = statistics.median(drifts) if drifts else None
    if not apart(a.p25, a.p75, b.p25, b.p75):
        return Change(name, a, b, SAME, drift)
    if common and not any(_ratio_moved(before, after, other) for other in common):
        return Change(name, a, b, MOVED, drift)
    return Change(name, a, b, FASTER if b.median < a.median else SLOWER, drift)


def _ratio_moved(before: Row, after: Row, other: str) -> bool:
    """Whether our time in units of another contender's changed by more than noise, and the same way."""
    assert before.ours is not None and after.ours is not None
    old, new = ratio(before.ours, before.times[other]), ratio(after.ours, after.times[other])
    same_way = (new.median < old.median) == (after.ours.median < before.ours.median)
    return same_way and apart(old.low, old.high, new.low, new.high)


def changes(a: Run, b: Run) -> List[Change]:
    """Every row that one of the runs has measured, in the order of the second."""
    before, after = ({row.name: row for row in run.rows} for run in (a, b))
    names = [*after, *(name for name in before if name not in after)]
    found = [change(name, before.get(name), after.get(name)) for name in names]
    return [one for one in found if one.before is not None or one.after is not None]


def text(a: Run, b: Run) -> str:
    """The comparison as a table."""
    lines = [
        f"{letter}  {run.label}  {run.about['sources']['subject']}" for letter, run in (("A", a), ("B", b))
    ]
    machines = [machine.text(run.about["machine"]) for run in (a, b)]
    lines.append(machines[0] if machines[0] == machines[1] else f"A on {machines[0]}; B on {machines[1]}")
    lines.append(f"{'work':<58} {'A':>10} {'B':>10} {'B/A':>6} {'others':>7}  verdict")
    counts: Dict[str, int] = {SAME: 0, MOVED: 0, FASTER: 0, SLOWER: 0}
    for one in changes(a, b):
        if one.verdict in counts:
            counts[one.verdict] += 1
        cells = [time_text(t.median) if t else "-" for t in (one.before, one.after)]
        factor = f"{one.factor:.2f}" if one.before and one.after else "-"
        drift = f"{one.drift:.2f}" if one.drift is not None else "-"
        lines.append(f"{one.name:<58} {cells[0]:>10} {cells[1]:>10} {factor:>6} {drift:>7}  {one.verdict}")
    lines.append(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    lines.append("others: how the times of the other contenders in the row changed: the machine, not us")
    return "\n".join(lines)


def main(arguments: Optional[List[str]] = None) -> int:
    """Prints the comparison."""
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=summary)
    parser.add_argument("a", help="a run's file, or a commit that has one")
    parser.add_argument("b", nargs="?", help="likewise (default: the newest run)")
    chosen = parser.parse_args(arguments)
    try:
        newest = store.stored()[-1:]
        if chosen.b is None and not newest:
            raise ValueError(f"there is no run in {store.FOLDER}; make bench makes one")
        print(text(store.find(chosen.a), store.find(chosen.b or str(newest[0]))))
    except ValueError as error:
        print(f"benchmarks.compare: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
