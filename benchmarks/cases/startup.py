# SPDX-License-Identifier: Apache-2.0
"""From the launcher's command to its return, for a script that does nothing: what starting costs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Dict, List, Mapping, Tuple

from benchmarks.bench import Bench, Rows
from benchmarks.environments import ROOT
from benchmarks.rows import OURS, Row, Turn
from benchmarks.starting import mpirun
from benchmarks.team import ContenderFailed
from benchmarks.turns import Work, take_turns

INIT = "import horovod.numpy as hvd; hvd.init(); hvd.shutdown()"
LIMIT_S = 120


class Launch:
    """Runs a launcher to its end, once a turn."""

    def __init__(self, command: List[str], env: Mapping[str, str]) -> None:
        self._command, self._env = command, {**os.environ, **env}

    def warm(self) -> None:
        """Files are read once."""
        self.turn()

    def turn(self) -> Turn:
        """From the command to its return."""
        start = time.perf_counter()
        try:
            done = subprocess.run(
                self._command, env=self._env, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ContenderFailed(f"did not end within {LIMIT_S} s") from error
        seconds = time.perf_counter() - start
        if done.returncode:
            raise ContenderFailed(done.stderr[-500:].strip() or f"ended with {done.returncode}")
        return Turn([seconds], [seconds])


def launchers(ranks: int, script: str) -> Tuple[Dict[str, Work], Dict[str, str]]:
    """Ours and the others over the same Python code, and why some cannot be had."""
    here = {"PYTHONPATH": str(ROOT)}
    np = ["-np", str(ranks)]
    ours = [sys.executable, "-m", "horovod.runner.launch", *np, sys.executable, "-c"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", str(ranks)]
    found: Dict[str, Work] = {
        OURS: Launch([*ours, script], here),
        "torchrun": Launch([*torchrun, sys.executable, "-c", script], here),
    }
    absent: Dict[str, str] = {}
    for name in ("openmpi", "mpich"):
        try:
            command, python, env = mpirun(name)
        except ContenderFailed as error:
            absent[name] = str(error)
            continue
        command += ["--oversubscribe"] if name == "openmpi" else []
        found[name] = Launch([*command, *np, python, "-c", script], env)
    return found, absent


def run(bench: Bench) -> Rows:
    """64 ranks of nothing; in a full run also fewer, and with hvd.init()."""
    yield _row(bench, 64)
    if not bench.quick:
        for ranks in (2, 8):
            yield _row(bench, ranks)
        for ranks in (2, 8):
            works, _ = launchers(ranks, INIT)
            yield take_turns(f"horovodrun -np {ranks}, hvd.init()", {OURS: works[OURS]}, bench.at_most(7))


def _row(bench: Bench, ranks: int) -> Row:
    works, absent = launchers(ranks, "pass")
    if bench.quick:  # torchrun alone would take most of the time
        absent.update({name: "only in a full run" for name in works if name != OURS})
        works = {OURS: works[OURS]}
    return take_turns(f"horovodrun -np {ranks}, empty script", works, bench.at_most(7), absent)
