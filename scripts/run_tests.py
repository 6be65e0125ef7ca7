# SPDX-License-Identifier: Apache-2.0
"""Runs the test suites, a few at a time, each in the environment it needs.

    python scripts/run_tests.py              all but those whose environments are large downloads
    python scripts/run_tests.py torch jax    these
    python scripts/run_tests.py --list

Environments that are missing or out of date are installed meanwhile (make .venv-ray/.ready), a few at a time;
a suite starts when its own is there. With --cpp, the C++ tests come first.

Logs go to out/tests/<suite>.log; what failed is printed at the end, then one line of totals. What failed is
run once more when the machine is quiet, to tell a broken test from an unsteady one. An unsteady test fails
the run all the same, unless scripts/unsteady_tests.txt lists it with a reason and a date.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOGS = os.path.join(ROOT, "out", "tests")
LIMIT_S = 1500  # a suite that takes longer hangs
INSTALLS = 3  # at a time: they download, then unpack
EXCUSED = os.path.join(ROOT, "scripts", "unsteady_tests.txt")
# "2026-11-30 tests/runner/test_x.py::test_y  the reason": the day the excuse ends, the test, why.
EXCUSE = re.compile(r"^(\d{4}-\d\d-\d\d)\s+(tests/\S+::\S+)\s+(\S.*)$")


class Suite(NamedTuple):
    """Tests that run in one process."""

    name: str
    tests: List[str]
    environment: str = ".venv"
    options: Tuple[str, ...] = ()
    by_name_only: bool = False  # its environment is a large download: not part of "all"


# What says nothing about a version of PyTorch.
WITHOUT_SOAK = ("--ignore=tests/torch/test_soak.py", "--ignore=tests/torch/test_docs.py")

# Longest first, so that the last to finish is a short one.
SUITES = [
    Suite("spark", ["tests/spark"], ".venv-spark"),
    Suite("runner", ["tests/runner"]),
    Suite("torch", ["tests/torch"]),
    Suite("tensorflow", ["tests/tensorflow"]),
    Suite("keras", ["tests/keras"]),
    Suite("ray", ["tests/ray"], ".venv-ray"),
    Suite("examples", ["tests/examples"]),
    Suite("engine", ["tests/engine", "tests/numpy"]),
    Suite("jax", ["tests/jax"]),
    Suite(
        "tensorflow-2.16",
        [
            "tests/tensorflow/test_collectives.py",
            "tests/tensorflow/test_errors.py",
            "tests/tensorflow/test_functions.py",
            "tests/tensorflow/test_gradients.py",
            "tests/tensorflow/test_sparse.py",
            "tests/tensorflow/test_tape.py",
            "tests/tensorflow/test_training.py",
            "tests/tensorflow/data",
            "tests/keras/test_loss_scaling.py",
            "tests/keras/test_training.py",
        ],
        ".venv-tf-old",
        ("-k", "not torch and not jax"),  # the other backends of Keras are not installed there
    ),
    Suite("torch-2.1", ["tests/torch"], ".venv-torch-old", WITHOUT_SOAK, by_name_only=True),
    Suite("torch-2.6", ["tests/torch"], ".venv-torch-middle", WITHOUT_SOAK, by_name_only=True),
    Suite("gpu", ["tests/gpu"], by_name_only=True),  # make test-gpu
    Suite("mxnet", ["tests/mxnet"], ".venv-mxnet"),
    Suite("data", ["tests/data", "tests/lightning"], ".venv-spark"),
    Suite("docs", ["tests/docs", "tests/docker"]),
    Suite("benchmarks", ["tests/benchmarks"]),
    Suite("jax-0.6", ["tests/jax/test_grid.py", "tests/jax/test_programs.py"], ".venv-jax-old"),
    Suite("common", ["tests/common", "tests/rendezvous"]),
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


def install(environment: str) -> bool:
    """Brings an environment up to date, e.g. ".venv-ray"; whether it is there."""
    if environment == ".venv":  # we run in it
        return True
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    start = time.monotonic()
    with open(install_log(environment), "w") as log:
        command = ["make", f"{environment}/.ready"]
        code = subprocess.run(command, cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT).returncode
    say(f"{environment}: {'there' if code == 0 else 'cannot be installed'}, {time.monotonic() - start:.0f} s")
    return code == 0


def install_log(environment: str) -> str:
    """What make said, e.g. out/tests/install.venv-ray.log."""
    return os.path.join(LOGS, f"install{environment}.log")


def cannot_run(suite: Suite) -> Dict[str, int]:
    """In place of a suite whose environment could not be installed."""
    shutil.copyfile(install_log(suite.environment), os.path.join(LOGS, suite.name + ".log"))
    return {"error": 1}


def run_when_ready(
    suites: Sequence[Suite],
    jobs: int,
    ready: Dict[str, Future[bool]],
    work: Callable[[Suite], Dict[str, int]],
) -> Dict[str, Dict[str, int]]:
    """Runs suites, so many at a time, in their order but for those whose environment is not there yet.

    Args:
        ready: done when an environment has been installed, or could not be.
        work: runs one suite.
    """
    left, results = list(suites), {}
    running: Dict[Future[Dict[str, int]], str] = {}
    with ThreadPoolExecutor(jobs) as pool:
        while left or running:
            for suite in [one for one in left if ready[one.environment].done()][: jobs - len(running)]:
                left.remove(suite)
                running[pool.submit(work, suite)] = suite.name
            # With all places taken, what has become ready is of no interest.
            installing = {ready[one.environment] for one in left} if len(running) < jobs else set()
            for future in wait([*running, *installing], return_when=FIRST_COMPLETED).done:
                if future in running:
                    results[running.pop(future)] = future.result()
    return {suite.name: results[suite.name] for suite in suites}


def run(suite: Suite, again: bool = False) -> Dict[str, int]:
    """Runs one suite, or what failed in it; the counts have "failed" > 0 if anything went wrong."""
    python = os.path.join(ROOT, suite.environment, "bin", "python")
    path = os.path.join(LOGS, suite.name + (".again" if again else "") + ".log")
    tests = [t for t in suite.tests if os.path.exists(os.path.join(ROOT, t))]
    if not tests:
        say(f"{suite.name}: no such tests here")
        return {}
    bin_dir = os.path.dirname(python)
    env = {**os.environ, "PYTHONPATH": ROOT, "PATH": bin_dir + os.pathsep + os.environ["PATH"]}
    cache = os.path.join(LOGS, "cache-" + suite.name)
    command = [python, "-m", "pytest", "-o", f"cache_dir={cache}", "--durations=8", *tests, *suite.options]
    if again:
        command += ["--last-failed", "--last-failed-no-failures", "none"]
    else:
        shutil.rmtree(cache, ignore_errors=True)
    say(f"{suite.name}: {'what failed, again' if again else 'started'}")
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


def read_log(name: str) -> List[str]:
    """The lines of a suite's first run."""
    path = os.path.join(LOGS, name + ".log")
    if not os.path.exists(path):
        return []
    with open(path) as log:
        return log.read().splitlines()


def failures(name: str) -> List[str]:
    """pytest's one-line summaries of what failed in the first run."""
    return [line for line in read_log(name) if line.startswith(("FAILED ", "ERROR "))]


def excuses(text: str, today: str) -> Dict[str, str]:
    """The tests that may need a second try, with the reason. Raises ValueError for a line without one."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = EXCUSE.match(line)
        if match is None:
            raise ValueError(
                f"{EXCUSED}:{number}: write 'YYYY-MM-DD tests/file.py::test  reason', not {line!r}"
            )
        until, test, reason = match.groups()
        if today <= until:
            found[test] = reason
    return found


def test_of(failure: str) -> str:
    """The test's name in one of pytest's summary lines, without its parameters."""
    return failure.split(" ", 1)[1].split(" - ", 1)[0].split("[", 1)[0].strip()


def main() -> int:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="*", help="names of suites; by default all but large downloads")
    parser.add_argument("-j", "--jobs", type=int, default=3, help="at a time (they mostly wait)")
    parser.add_argument("--cpp", action="store_true", help="make test-cpp first")
    parser.add_argument("--list", action="store_true", help="print the suites and end")
    args = parser.parse_args()
    if args.list:
        for suite in SUITES:
            print(f"{suite.name:16} {suite.environment:14} {' '.join(suite.tests)}")
        return 0
    unknown = set(args.suites) - {s.name for s in SUITES}
    if unknown:
        parser.error(f"no such suite: {', '.join(sorted(unknown))}; --list shows them")
    chosen = [s for s in SUITES if (s.name in args.suites if args.suites else not s.by_name_only)]
    os.makedirs(LOGS, exist_ok=True)
    with open(EXCUSED, encoding="utf-8") as file:
        excused = excuses(file.read(), time.strftime("%Y-%m-%d"))
    with ThreadPoolExecutor(INSTALLS) as installs:
        ready = {
            name: installs.submit(install, name) for name in dict.fromkeys(s.environment for s in chosen)
        }
        cpp = (
            subprocess.run(["make", "--no-print-directory", "test-cpp"], cwd=ROOT).returncode
            if args.cpp
            else 0
        )
        results = run_when_ready(
            chosen, args.jobs, ready, lambda s: run(s) if ready[s.environment].result() else cannot_run(s)
        )

    unsteady = []
    for suite in chosen:
        counts = results[suite.name]
        broken = counts.get("failed", 0) + counts.get("error", 0)
        if not broken or not ready[suite.environment].result():
            continue
        second = run(suite, again=True)
        if second.get("passed", 0) >= broken and not second.get("failed") and not second.get("error"):
            lines = failures(suite.name)
            unsteady += lines
            if lines and all(test_of(line) in excused for line in lines):
                counts["passed"] = counts.get("passed", 0) + broken
                counts["failed"] = counts["error"] = 0

    failed = [name for name, counts in results.items() if counts.get("failed") or counts.get("error")]
    for name in results:
        lines = read_log(name)
        for line in lines:
            if line.startswith("SKIPPED"):
                print(f"{name}: {line}")
        if name in failed:
            print(f"\n===== {name} failed; the end of its log:")
            print("\n".join(lines[-150:]))
    for line in unsteady:
        reason = excused.get(test_of(line))
        verdict = f"excused: {reason}" if reason else "not excused in scripts/unsteady_tests.txt: mend it"
        print(f"unsteady, passed when run again ({verdict}): {line}")
    passed, wrong, errors, skipped = (
        sum(counts.get(kind, 0) for counts in results.values())
        for kind in ("passed", "failed", "error", "skipped")
    )
    if cpp:
        print("\nthe C++ tests failed; see above")
    print(f"\n{passed} passed, {wrong + errors} failed, {skipped} skipped")
    return 1 if failed or cpp else 0


if __name__ == "__main__":
    sys.exit(main())
