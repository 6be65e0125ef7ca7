# SPDX-License-Identifier: Apache-2.0
"""Runs the test suites, a few at a time, each in the environment it needs.

    python scripts/run_tests.py              all of them
    python scripts/run_tests.py torch jax    these
    python scripts/run_tests.py --list

Logs go to out/tests/<suite>.log; what failed is printed at the end, then one line of totals.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Dict, List, NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOGS = os.path.join(ROOT, "out", "tests")
LIMIT_S = 1500  # a suite that takes longer hangs


class Suite(NamedTuple):
    """Tests that run in one process."""

    name: str
    tests: List[str]
    environment: str = ".venv"


# Longest first, so that the last to finish is a short one.
SUITES = [
    Suite("runner", ["tests/runner"]),
    Suite("torch", ["tests/torch"]),
    Suite("tensorflow", ["tests/tensorflow"]),
    Suite("keras", ["tests/keras"]),
    Suite("examples", ["tests/examples"]),
    Suite("engine", ["tests/engine", "tests/numpy"]),
    Suite("jax", ["tests/jax"]),
    Suite("mxnet", ["tests/mxnet"], ".venv-mxnet"),
    Suite("docs", ["tests/docs"]),
    Suite("benchmarks", ["tests/benchmarks"]),
    Suite("tensorflow-2.16", ["tests/tensorflow/test_tf_collectives.py", "tests/tensorflow/test_tf_tape.py"],
          ".venv-tf-old"),
    Suite("jax-0.6", ["tests/jax/test_grid.py", "tests/jax/test_programs.py"], ".venv-jax-old"),
    Suite("common", ["tests/common"]),
]  # fmt: skip

_say_lock = threading.Lock()


def say(text: str) -> None:
    """One line, with the time."""
    with _say_lock:
        print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def totals(log: str) -> Dict[str, int]:
    """What pytest's closing line counts, e.g. {"passed": 41, "skipped": 1}."""
    for line in reversed(log.splitlines()):
        found = re.findall(r"(\d+) (passed|failed|error|errors|skipped|xfailed|xpassed)", line)
        if found and " in " in line:
            return {kind.rstrip("s") if kind.startswith("error") else kind: int(n) for n, kind in found}
    return {}


def run(suite: Suite) -> Dict[str, int]:
    """Runs one suite; the counts have "failed" > 0 if anything went wrong."""
    python = os.path.join(ROOT, suite.environment, "bin", "python")
    path = os.path.join(LOGS, suite.name + ".log")
    tests = [t for t in suite.tests if os.path.exists(os.path.join(ROOT, t))]
    if not tests:
        say(f"{suite.name}: no such tests here")
        return {}
    bin_dir = os.path.dirname(python)
    env = {**os.environ, "PYTHONPATH": ROOT, "PATH": bin_dir + os.pathsep + os.environ["PATH"]}
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", "--durations=8", *tests]
    say(f"{suite.name}: started")
    start = time.monotonic()
    with open(path, "w") as log:
        try:
            code = subprocess.run(
                command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                timeout=LIMIT_S,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            log.write(f"\nstopped after {LIMIT_S} s\n")
            code = -1
        except OSError as error:
            log.write(f"\ncannot run {python}: {error}\n")
            code = -1
    with open(path) as log:
        text = log.read()
    counts = totals(text)
    if code != 0 and not counts.get("failed") and not counts.get("error"):
        counts["failed"] = counts.get("failed", 0) + 1
    summary = ", ".join(f"{n} {kind}" for kind, n in counts.items())
    say(f"{suite.name}: {summary or 'nothing ran'} in {time.monotonic() - start:.0f} s")
    return counts


def main() -> int:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="*", help="names of suites; all by default")
    parser.add_argument("-j", "--jobs", type=int, default=min(3, os.cpu_count() or 1), help="at a time")
    parser.add_argument("--list", action="store_true", help="print the suites and end")
    args = parser.parse_args()
    if args.list:
        for suite in SUITES:
            print(f"{suite.name:16} {suite.environment:14} {' '.join(suite.tests)}")
        return 0
    unknown = set(args.suites) - {s.name for s in SUITES}
    if unknown:
        parser.error(f"no such suite: {', '.join(sorted(unknown))}; --list shows them")
    chosen = [s for s in SUITES if not args.suites or s.name in args.suites]
    os.makedirs(LOGS, exist_ok=True)
    with ThreadPoolExecutor(args.jobs) as pool:
        results = dict(zip((s.name for s in chosen), pool.map(run, chosen)))

    failed = [name for name, counts in results.items() if counts.get("failed") or counts.get("error")]
    for name in results:
        with open(os.path.join(LOGS, name + ".log")) as log:
            lines = log.read().splitlines()
        for line in lines:
            if line.startswith("SKIPPED"):
                print(f"{name}: {line}")
        if name in failed:
            print(f"\n===== {name} failed; the end of its log:")
            print("\n".join(lines[-150:]))
    passed, wrong, errors, skipped = (
        sum(counts.get(kind, 0) for counts in results.values())
        for kind in ("passed", "failed", "error", "skipped")
    )
    print(f"\n{passed} passed, {wrong + errors} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
