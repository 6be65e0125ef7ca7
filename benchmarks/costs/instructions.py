# SPDX-License-Identifier: Apache-2.0
"""Instructions of a call, counted by valgrind: the same on a busy machine as on an idle one.

    python -m benchmarks.costs.instructions LOOP FOLDER        what valgrind runs

Only for loops with one rank: threads run one at a time under valgrind, which says nothing about waiting.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional

from benchmarks.costs.loops import LOOPS
from benchmarks.environments import ROOT
from benchmarks.starting import ONE_THREAD

CALLS = 300
LINE = re.compile(r"\s*([\d,]+)\s+(\S+?):(.+?)(?: \[([^\]]*/[^\]]*|\?+)\])?$")
HEADER = Path("/usr/include/valgrind/callgrind.h")


class Count(NamedTuple):
    """Instructions a call of one function."""

    instructions: float
    function: str
    library: str


class Counted(NamedTuple):
    """What valgrind found."""

    total: float
    own: List[Count]
    inclusive: List[Count]

    def by_library(self) -> Dict[str, float]:
        """Instructions a call, the most first."""
        sums: Dict[str, float] = {}
        for count in self.own:
            library = count.library or "(inlined)"
            sums[library] = sums.get(library, 0.0) + count.instructions
        return dict(sorted(sums.items(), key=lambda item: -item[1]))


def why_not() -> Optional[str]:
    """Why instructions cannot be counted here, or None if they can."""
    if shutil.which("valgrind") is None or not HEADER.exists():
        return "valgrind is not installed (Debian: valgrind)"
    return None


def count(loop: str, engine: Path, folder: Path) -> Counted:
    """Runs a loop under valgrind."""
    command = ["cc", "-O2", "-shared", "-fPIC", str(Path(__file__).parent / "counted.c"), "-o"]
    subprocess.run([*command, str(folder / "counted.so")], check=True)
    profile = folder / "callgrind.out"
    valgrind = ["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--callgrind-out-file={profile}"]
    rank = [sys.executable, "-m", "benchmarks.costs.instructions", loop, str(folder)]
    env = {**os.environ, **ONE_THREAD, "HOROVOD_CORE_LIBRARY": str(engine)}
    done = subprocess.run(
        [*valgrind, *rank], env=env, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    if done.returncode:
        raise RuntimeError(f"valgrind: {done.stderr[-1000:]}")
    return _read(profile)


def _read(profile: Path) -> Counted:
    texts = []
    for inclusive in ("no", "yes"):
        command = ["callgrind_annotate", "--auto=no", f"--inclusive={inclusive}", "--threshold=99.5"]
        command += ["--show-percs=no", str(profile)]
        texts.append(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    total = re.search(r"([\d,]+)\s+PROGRAM TOTALS", texts[0])
    instructions = int(total.group(1).replace(",", "")) if total else 0
    return Counted(instructions / CALLS, parse(texts[0], CALLS), parse(texts[1], CALLS))


def parse(text: str, calls: int) -> List[Count]:
    """Lines like "1,234,567  file.cc:hvd::Engine::wait(long, double) [/path/libhorovod_core.so]"."""
    found: Dict[str, Count] = {}
    for line in text.splitlines():
        match = LINE.match(line)
        if match is None or "PROGRAM TOTALS" in line:
            continue
        number, _, function, library = match.groups()
        count = int(number.replace(",", "")) / calls
        # A function that calls itself is listed once a level, as name'2; an inlined copy without its library.
        function = re.sub(r"'\d+$", "", function)
        known = found.get(function)
        library = os.path.basename(library or "") or (known.library if known else "")
        found[function] = Count(max(count, known.instructions if known else 0.0), function, library)
    return sorted(found.values(), key=lambda c: -c.instructions)


def main() -> None:
    """Runs the loop with counting on."""
    loop, folder = LOOPS[sys.argv[1]], Path(sys.argv[2])
    call: Callable[[], object] = loop.prepare()
    counting = ctypes.CDLL(str(folder / "counted.so")).counting
    for _ in range(50):
        call()
    counting()
    for _ in range(CALLS):
        call()
    counting()


if __name__ == "__main__":
    main()
