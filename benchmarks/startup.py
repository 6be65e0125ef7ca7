# SPDX-License-Identifier: Apache-2.0
"""From the launcher's command to its return, for a script that does nothing: what starting costs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any, Dict, List, Tuple

from benchmarks.environments import ROOT, mpi_environment
from benchmarks.harness import print_table, summary

Command = Tuple[List[str], Dict[str, str]]


def commands(ranks: int, quick: bool) -> Dict[str, Command]:
    """The launchers, each over `python -c pass` and ours also over hvd.init()."""
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    np = ["-np", str(ranks)]
    ours = [sys.executable, "-m", "horovod.runner.launch", *np, sys.executable, "-c"]
    init = "import horovod.numpy as hvd; hvd.init(); hvd.shutdown()"
    found: Dict[str, Command] = {"horovod": ([*ours, "pass"], here), "horovod + init": ([*ours, init], here)}
    if quick:
        return found
    script = str(ROOT / "benchmarks" / "empty.py")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), script]
    found["torchrun"] = (torchrun, here)
    for name in ("openmpi", "mpich"):
        place = mpi_environment(name)
        if place is not None:
            root = ["--allow-run-as-root", "--oversubscribe"] if name == "openmpi" else []
            env = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}"}
            found[name] = ([str(place / "mpirun"), *root, *np, str(place / "python"), "-c", "pass"], env)
    return found


def run(quick: bool = False) -> Dict[str, Any]:
    """{ranks: {launcher: {...}}}"""
    rows: Dict[str, Any] = {}
    for ranks in (2,) if quick else (2, 8):
        times: Dict[str, List[float]] = {}
        for _ in range(2 if quick else 7):
            for name, (command, env) in commands(ranks, quick).items():
                start = time.perf_counter()
                done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
                if done.returncode:
                    print(f"benchmarks: {name} failed: {done.stderr[-500:]}", file=sys.stderr)
                    continue
                times.setdefault(name, []).append(time.perf_counter() - start)
        rows[f"{ranks} ranks"] = {name: summary(values) for name, values in times.items()}
    print_table("launching an empty script", "", rows)
    return rows
