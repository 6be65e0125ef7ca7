# SPDX-License-Identifier: Apache-2.0
"""Where the microseconds of one row go: lines of Python, functions of the engine, kernel.

    python -m benchmarks.costs allreduce-1        one of them; the report also goes to out/profile/
    python -m benchmarks.costs                    all
    python -m benchmarks.costs --list

Needs Linux perf for the functions and a C compiler for the engine by itself; says so where they are missing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List, Optional

from benchmarks import priority
from benchmarks.costs import instructions, perf
from benchmarks.costs.loops import LOOPS
from benchmarks.costs.rank import compile_native
from benchmarks.costs.report import Functions, counted_text, text
from benchmarks.environments import ROOT
from benchmarks.noise import Watch
from benchmarks.starting import ONE_THREAD

OUT = ROOT / "out" / "profile"


def take_apart(name: str, engine: Path, seconds: float) -> str:
    """Runs one loop and describes it."""
    loop = LOOPS[name]
    with tempfile.TemporaryDirectory(prefix="hvd-costs-") as folder, Watch() as watch:
        problem = ""
        try:
            compile_native(Path(folder), engine)
        except (OSError, subprocess.CalledProcessError) as error:
            problem = f"native.c could not be compiled: {error}"
        rank = [sys.executable, "-m", "benchmarks.costs.rank", name, folder, str(seconds)]
        command = [sys.executable, "-m", "horovod.runner.launch", "-np", str(loop.ranks), *rank]
        env = {**os.environ, **ONE_THREAD, "HOROVOD_CORE_LIBRARY": str(engine)}
        done = subprocess.run(
            command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
        found = json.loads((Path(folder) / "found.json").read_text())
        data = Path(folder) / "perf.data"
        functions = None
        if data.exists():
            functions = Functions(perf.own(data), perf.inclusive(data), perf.in_the_engine(data))
    found["problem"] = problem
    return text(name, loop, found, functions, watch.noise)


def count_instructions(name: str, engine: Path) -> str:
    """What valgrind says, for loops of one rank."""
    reason = instructions.why_not() if LOOPS[name].ranks == 1 else "only for loops of one rank"
    if reason is not None:
        return f"-- instructions: not counted: {reason}"
    with tempfile.TemporaryDirectory(prefix="hvd-costs-") as folder:
        return counted_text(LOOPS[name], instructions.count(name, engine, Path(folder)))


def main(arguments: Optional[List[str]] = None) -> int:
    """Prints and stores the reports."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.costs", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("loops", nargs="*", metavar="LOOP", help=f"which: {', '.join(LOOPS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement (default: 3)")
    counting = "also count instructions with valgrind, which a busy machine does not change (a minute)"
    parser.add_argument("--instructions", action="store_true", help=counting)
    realtime = "real-time priority while measuring, for machines that are not idle (needs root)"
    parser.add_argument("--realtime", action="store_true", help=realtime)
    parser.add_argument("--list", action="store_true", help="name the loops")
    parser.add_argument("--out", type=Path, default=OUT, help="where the reports go")
    parser.add_argument("--engine", type=Path, help="the engine's library (default: builds one with symbols)")
    chosen = parser.parse_args(arguments)
    if chosen.list:
        print("\n".join(f"{name:<14} {loop.about}" for name, loop in LOOPS.items()))
        return 0
    unknown = [name for name in chosen.loops if name not in LOOPS]
    if unknown:
        parser.error(f"nothing called {', '.join(unknown)}; there are {', '.join(LOOPS)}")
    if chosen.realtime:
        os.environ[priority.VARIABLE] = "1"
    engine = chosen.engine or perf.build_with_symbols()
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name in chosen.loops or LOOPS:
        report = take_apart(name, engine, chosen.seconds)
        if chosen.instructions:
            report += "\n\n" + count_instructions(name, engine)
        print(report, flush=True)
        (chosen.out / f"{name}.txt").write_text(report + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
