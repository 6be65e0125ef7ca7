# SPDX-License-Identifier: Apache-2.0
"""What this rank is doing: counters, the present, stacks."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
import traceback
from typing import Any, Dict, List

from horovod.common import _native, topology
from horovod.rendezvous.identity import host_name


def metrics() -> Dict[str, Any]:
    """The engine's counters."""
    lib = _native.lib()
    buffer = ctypes.create_string_buffer(int(lib.hvd_metrics(None, 0)) + 256)
    lib.hvd_metrics(buffer, len(buffer))
    counters: Dict[str, Any] = json.loads(buffer.value or b"{}")
    return counters


def now() -> Dict[str, Any]:
    """What this rank does now."""
    counters = metrics()
    outstanding = counters["submitted"] - counters["tensors"] - counters["errors"]
    state = "waiting" if outstanding > 0 else "idle"
    if _last["of"] != (counters["submitted"], outstanding):
        _last.update({"of": (counters["submitted"], outstanding), "since": time.monotonic()})
    since = time.monotonic() - _last["since"]
    return {"state": state, "name": "", "kind": "", "since_s": since, "missing": [], "queue": outstanding}


_last: Dict[str, Any] = {"of": None, "since": 0.0}


def snapshot() -> Dict[str, Any]:
    """Everything that is shown of a rank."""
    place = topology.known()
    with open("/proc/self/statm", encoding="ascii") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "rank": place.rank, "size": place.size, "host": host_name(), "pid": os.getpid(),
        "generation": topology.world().generation, "time": time.time(), "steps": 0, "step_s": 0.0,
        "now": now(), "metrics": metrics(), "memory_bytes": resident,
    }  # fmt: skip


def stacks() -> str:
    """Python stacks of all threads."""
    frames, names = sys._current_frames(), {one.ident: one.name for one in threading.enumerate()}
    parts: List[str] = []
    for ident, frame in frames.items():
        parts.append(f"Thread {names.get(ident, ident)}:\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(parts)
