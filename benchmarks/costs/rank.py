# SPDX-License-Identifier: Apache-2.0
"""One rank of a job that is taken apart. Rank 0 writes what it found; the others do the same calls.

python -m benchmarks.costs.rank LOOP FOLDER SECONDS
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Callable, Dict, List

from benchmarks import priority
from benchmarks.costs import perf
from benchmarks.costs.lines import LineSampler
from benchmarks.costs.loops import LOOPS, small_tensors
from benchmarks.environments import ROOT

BATCHES = 20


def timed(call: Callable[[], Any], count: int) -> Dict[str, List[float]]:
    """Seconds a call, of so many batches of calls: on the clock, and of this thread's processor time."""
    found: Dict[str, List[float]] = {"wall": [], "processor": []}
    for _ in range(BATCHES):
        start, spent = time.perf_counter(), time.thread_time()
        for _ in range(max(1, count // BATCHES)):
            call()
        found["wall"].append((time.perf_counter() - start) / max(1, count // BATCHES))
        found["processor"].append((time.thread_time() - spent) / max(1, count // BATCHES))
    return found


def agree(call: Callable[[], Any], seconds: float) -> int:
    """How many calls take so long: rank 0 measures, all hear it."""
    import numpy as np

    import horovod.numpy as hvd

    each = min(timed(call, 20 * BATCHES)["wall"])
    number = hvd.broadcast(np.array([max(BATCHES, int(seconds / each))], np.int64), 0, name="calls")
    return int(number[0])


def native(loop: str, folder: Path, count: int) -> Dict[str, List[float]]:
    """Seconds a call by the C header alone, in batches."""
    function = getattr(library(folder), f"native_{loop}")
    function.restype = ctypes.c_double
    rest: List[Any] = []
    if loop in ("many", "grouped"):
        counts = small_tensors()
        rest = [(ctypes.c_int64 * len(counts))(*counts), ctypes.c_int32(len(counts))]
    function(ctypes.c_int32(20), *rest)
    found: Dict[str, List[float]] = {"wall": [], "processor": []}
    calls = max(1, count // BATCHES)
    for _ in range(BATCHES):
        spent = time.thread_time()
        seconds = float(function(ctypes.c_int32(calls), *rest))
        if seconds < 0:
            raise OSError("the engine refused a request of native.c")
        found["wall"].append(seconds)
        found["processor"].append((time.thread_time() - spent) / calls)
    return found


def library(folder: Path) -> ctypes.CDLL:
    """native.c, compiled by the driver before the ranks started."""
    return ctypes.CDLL(str(folder / "native.so"))


def compile_native(folder: Path, engine: Path) -> None:
    """Links native.c with the engine that the ranks load."""
    source = Path(__file__).parent / "native.c"
    command = ["cc", "-O2", "-shared", "-fPIC", f"-I{ROOT / 'csrc' / 'include'}", str(source), str(engine)]
    command += [f"-Wl,-rpath,{engine.parent}", "-o", str(folder / "native.so")]
    subprocess.run(command, check=True)


def foreign_call(folder: Path) -> Dict[str, List[float]]:
    """Seconds of a ctypes call with the arguments of hvd_run that does nothing."""
    nothing = library(folder).native_nothing
    nothing.restype = ctypes.c_int32
    nothing.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_double, ctypes.POINTER(ctypes.c_int64)]
    handle = ctypes.c_int64()
    pointer, reference = ctypes.byref(ctypes.create_string_buffer(8)), ctypes.byref(handle)
    return timed(lambda: nothing(pointer, 1, 0.2, reference), 100_000)


def main() -> None:
    """Measures plainly, by lines, under perf, and without Python."""
    name, folder, seconds = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    loop = LOOPS[name]
    call = loop.prepare()
    import horovod.numpy as hvd

    first = hvd.rank() == 0
    found: Dict[str, Any] = {}
    with priority.preferred(loop.ranks):
        hvd.barrier()
        count = found["calls"] = agree(call, seconds)
        found["plain"] = timed(call, count)
    with priority.preferred(loop.ranks):
        hvd.barrier()
        with LineSampler() if first else nullcontext() as sampler:
            for _ in range(count):
                call()
    if sampler is not None:
        found["lines"], found["line_samples"] = sampler.shares()[:60], sampler.samples
    found["perf"] = perf.why_not() if first else None
    recording = perf.Recording(folder / "perf.data") if first and found["perf"] is None else nullcontext()
    with recording, priority.preferred(loop.ranks):
        hvd.barrier()
        for _ in range(count):
            call()
    try:
        with priority.preferred(loop.ranks):
            hvd.barrier()
            found["native"] = native(loop.native, folder, count) if loop.native else None
        found["foreign_call"] = foreign_call(folder)
    except OSError as error:  # native.c did not compile: the driver has said why
        found["native"], found["foreign_call"], found["native_error"] = None, None, str(error)
    if first:
        (folder / "found.json").write_text(json.dumps(found))
    hvd.shutdown()
    os._exit(0)  # perf and the sampler leave nothing to tidy up


if __name__ == "__main__":
    main()
