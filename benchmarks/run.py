# SPDX-License-Identifier: Apache-2.0
"""All benchmarks in one go: rows and verdicts here, the run as JSON and pictures in out/benchmarks.

python -m benchmarks.run                    everything, half an hour
python -m benchmarks.run --quick            what has something to reach, less than five minutes
python -m benchmarks.run allreduce startup  only these
python -m benchmarks.run --list             what there is
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import List, Optional

from benchmarks import goals, machine, plot, priority, report, store, table
from benchmarks.bench import Bench
from benchmarks.cases import CASES, NOT_QUICK
from benchmarks.noise import Watch
from benchmarks.rows import Row
from benchmarks.starting import Teams

BROKEN = "(the benchmark itself)"


def options(arguments: Optional[List[str]]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help=f"which: {', '.join(CASES)} (default: all)")
    add("--quick", action="store_true", help="fewer sizes and repetitions")
    add("--rounds", type=int, default=0, help="turns of each contender (default: 6 quick, 15 full)")
    add("--out", type=Path, default=store.FOLDER, help="where the run and its pictures go")
    realtime = "real-time priority where ranks have a core each, for machines that are not idle (needs root)"
    add("--realtime", action="store_true", help=realtime)
    add("--docs", action="store_true", help="also renew the tables and pictures of README.md and docs/")
    add("--list", action="store_true", help="name the benchmarks and what is to be reached")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.names if name not in CASES]
    if unknown:
        parser.error(f"no benchmark called {', '.join(unknown)}; there are {', '.join(CASES)}")
    return chosen


def measure(names: List[str], bench: Bench, rows: List[Row]) -> None:
    """Runs benchmarks one after the other, printing each row. One that breaks is a row that says so."""
    for name in names:
        start = time.monotonic()
        try:
            for row in CASES[name](bench):
                row.benchmark = name
                rows.append(row)
                print(table.details(row), flush=True)
        except Exception:
            text = traceback.format_exc()
            print(text, file=sys.stderr)
            rows.append(Row(f"{name} {BROKEN}", benchmark=name, not_run=text))
        print(f"  -- {name}: {time.monotonic() - start:.0f} s", flush=True)


def main(arguments: Optional[List[str]] = None) -> int:
    """Measures, prints, stores. Fails if a benchmark broke or gave nothing of ours."""
    chosen = options(arguments)
    if chosen.list:
        print("\n".join(CASES))
        print("\n".join(f"  {name}: {'; '.join(map(str, reach))}" for name, reach in goals.GOALS.items()))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # teams are closed on the way out
    if chosen.realtime:
        os.environ[priority.VARIABLE] = "1"
    names = chosen.names or [n for n in CASES if not (chosen.quick and n in NOT_QUICK)]
    about = {
        "date": store.now(),
        "quick": chosen.quick,
        "realtime": chosen.realtime,
        "benchmarks": names,
        "machine": machine.facts(),
        "sources": machine.sources(),
        "load_before": os.getloadavg()[0],
    }
    run = store.Run(about)
    print(f"{machine.text(about['machine'])}; {run.label}; load {about['load_before']:.1f}")
    start = time.monotonic()
    about["interrupted"] = True
    try:
        with Watch() as watch, Teams() as teams:
            measure(names, Bench(teams, chosen.quick, chosen.rounds), run.rows)
        about["interrupted"] = False
    finally:  # what was measured is kept
        why = "the run was interrupted" if about["interrupted"] else "no benchmark gave this row"
        if not chosen.names:
            run.rows += goals.unanswered(run.rows, why)
        about["noise"] = watch.noise._asdict()
        about["seconds"] = round(time.monotonic() - start)
        path = store.save(run, chosen.out)
        print(f"\nwritten to {path}", flush=True)
    print(f"\n{table.others(run.rows)}\n\n{table.verdicts(run.rows)}")
    print(f"\nthe whole run: {watch.noise}, {about['seconds']} s; load before {about['load_before']:.1f}")
    if table.is_busy(watch.noise):
        print("this machine was busy with other things: read ratios, not times")
    plot.pictures(run, chosen.out)
    if chosen.docs:
        report.write(run)
    broken = any(row.name.endswith(BROKEN) for row in run.rows)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
