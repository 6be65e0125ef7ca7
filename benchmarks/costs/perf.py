# SPDX-License-Identifier: Apache-2.0
"""Linux perf over a running process: where its threads' processor time goes, by library and by function.

Uses the software clock, which virtual machines have too. Symbols of the engine come from the build that
`build_with_symbols` makes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import List, NamedTuple, Optional

from benchmarks.environments import ROOT

FREQUENCY = 4999
BUILD = ROOT / "build-profile"


class Cost(NamedTuple):
    """A share of all samples."""

    share: float
    thread: str
    library: str
    function: str


def why_not() -> Optional[str]:
    """Why perf cannot be used here, or None if it can."""
    if shutil.which("perf") is None:
        return "perf is not installed (Debian: linux-perf)"
    probe = ["perf", "record", "-e", "cpu-clock", "-o", "/dev/null", "true"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"perf record: {done.stderr.strip()[-200:]}"


def build_with_symbols() -> Path:
    """The engine with symbols and frame pointers, in a build folder of its own."""
    flags = "-fno-omit-frame-pointer"
    configure = ["cmake", "-S", str(ROOT), "-B", str(BUILD), "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
    configure += [f"-DCMAKE_CXX_FLAGS={flags}"] + (["-G", "Ninja"] if shutil.which("ninja") else [])
    make = ["cmake", "--build", str(BUILD), "--target", "horovod_core", "-j", str(os.cpu_count() or 1)]
    for step in (configure, make):
        subprocess.run(step, check=True, stdout=subprocess.DEVNULL)
    return BUILD / "lib" / "libhorovod_core.so"


class Recording:
    """perf record of this process, all threads, while the with block lasts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Recording:
        control, answer = (self.path.with_suffix(suffix) for suffix in (".control", ".answer"))
        for fifo in (control, answer):
            os.mkfifo(fifo)
        command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(FREQUENCY), "--call-graph", "fp"]
        command += ["-p", str(os.getpid()), "-o", str(self.path)]
        command += ["--delay=-1", f"--control=fifo:{control},{answer}"]
        self._perf = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(control, "w") as orders, open(answer) as answers:
            print("enable", file=orders, flush=True)
            answers.readline()  # now it records
        return self

    def __exit__(self, *error: object) -> None:
        self._perf.send_signal(signal.SIGINT)
        self._perf.wait(60)


def own(path: Path) -> List[Cost]:
    """What each function costs itself."""
    return _report(path, ["--no-children", "--sort", "comm,dso,symbol"])


def inclusive(path: Path) -> List[Cost]:
    """What each function costs with everything it calls."""
    return _report(path, ["--children", "--sort", "comm,dso,symbol"])


def in_the_engine(path: Path) -> List[Cost]:
    """What functions of any library cost that the interface called; its function is in the thread's place."""
    under = _report(path, ["--no-children", "--parent", "^hvd_[a-z]+$", "--sort", "parent,dso,symbol"])
    return [cost for cost in under if cost.thread.startswith("hvd_")]


def _report(path: Path, options: List[str]) -> List[Cost]:
    command = ["perf", "report", "-i", str(path), "--stdio", "-q", "-g", "none", "--percent-limit", "0.03"]
    done = subprocess.run([*command, "-t", ";", *options], check=True, capture_output=True, text=True)
    return parse(done.stdout)


def parse(text: str) -> List[Cost]:
    """Lines like "12.34%;python;libhorovod_core.so;[.] hvd::Engine::progress", some with a second share."""
    costs = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(";")]
        shares = [cell for cell in cells if cell.endswith("%") and cell[:-1].replace(".", "").isdigit()]
        rest = [cell for cell in cells[len(shares) :] if cell.strip(" -")]  # empty columns are dashes
        if not shares or len(rest) < 3:
            continue
        function = ";".join(rest[2:]).removeprefix("[.] ").removeprefix("[k] ")
        costs.append(Cost(float(shares[0][:-1]) / 100, rest[0], os.path.basename(rest[1]), function))
    return costs
