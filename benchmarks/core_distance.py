# SPDX-License-Identifier: Apache-2.0
"""How far apart the cores are: a host may move a virtual machine to cores that share no cache, and back.

What goes through shared memory or a socket then takes several times as long, for minutes, and not for
everybody alike. So every row says how it was: core_distance.c, compiled when first asked for.
"""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path
from typing import Optional

from benchmarks.environments import ROOT

_SOURCE = Path(__file__).with_suffix(".c")
_PROGRAM = ROOT / "out" / "core_distance"


def nanoseconds() -> Optional[float]:
    """A cache line from the first core we may use to the last, and back; None if that cannot be measured."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2 or not _compiled():
        return None
    command = [str(_PROGRAM), str(cores[0]), str(cores[-1])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else None


@functools.cache
def _compiled() -> bool:
    _PROGRAM.parent.mkdir(exist_ok=True)
    try:
        subprocess.run(["cc", "-O2", "-pthread", str(_SOURCE), "-o", str(_PROGRAM)], check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True
