# SPDX-License-Identifier: Apache-2.0
"""What a rank can tell about itself: counters, what it does now, its last collectives, its stacks.

    hvd.metrics()["wait_us"]      # so long this rank has waited for others
    hvd.mark("epoch 3")           # shows up in the timeline

All of it is there at any time, costs the training nothing, and needs nothing to be switched on.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, List, TypedDict

from horovod.common import _native, topology
from horovod.common.exceptions import raise_for


class KindCount(TypedDict):
    """What was executed of one kind of collective."""

    count: int
    """Tensors."""
    bytes: int
    """Of this rank."""
    us: int
    """Microseconds inside batches."""


class Histogram(TypedDict):
    """How many took how long."""

    bounds: List[int]
    """Upper bounds in microseconds, ascending."""
    counts: List[int]
    """One more than bounds: the last counts what took longer than all of them. Not cumulative."""
    sum: int
    """Microseconds of all together."""


class Metrics(TypedDict):
    """Counters of this rank since `init`, in bytes and microseconds."""

    submitted: int
    """Tensors handed in."""
    batches: int
    """Batches executed."""
    tensors: int
    """Tensors executed."""
    fused_tensors: int
    """Of these, in batches of two or more."""
    bytes: int
    """Payload of this rank."""
    execute_us: int
    """Time inside batches."""
    cached_announcements: int
    """Tensors that the others knew from before: a number was enough to announce them."""
    full_announcements: int
    """Tensors that had to be described in full. If it grows with `tensors`, names or shapes keep changing."""
    plans: int
    """Times the order of execution was agreed on."""
    errors: int
    """Batches that failed."""
    fusion_bytes: int
    """Payload of batches of two or more tensors."""
    fusion_capacity_bytes: int
    """What those batches had room for: their number times HOROVOD_FUSION_THRESHOLD."""
    wait_us: int
    """Time in which this rank had submitted what others had not, however many tensors it was."""
    waited_for_us: Dict[str, int]
    """Of that, by the rank that came last: {"3": 125000}."""
    by_kind: Dict[str, KindCount]
    """E.g. {"ALLREDUCE": {"count": 161, "bytes": 102228128, "us": 48110}}."""
    latency_us: Histogram
    """Of a tensor, from being handed in to its end."""
    steps: int
    """Steps of the training: marked by a skin or the script (`step_done`), else as the tensors show them."""
    step_us: int
    """Time of all steps but the first, whose beginning nobody saw."""
    last_step_us: int
    """Time of the last step."""
    queue_depth: int
    """Tensors handed in and not done at this moment."""
    buffer_bytes: int
    """Memory set aside for this rank's data in host memory."""
    restarts: int
    """How often this process has joined a world before this one: elastic jobs, shutdown and init."""


def _text(function: Callable[[Any, int], int]) -> str:
    """What a function of the engine writes into a buffer; it may grow between two calls."""
    room = 1 << 12
    while True:
        buffer = ctypes.create_string_buffer(room)
        needed = function(buffer, room)
        if needed < 0:
            raise_for(needed, _native.last_error())
        if needed < room:
            return buffer.value.decode("utf-8", "replace")
        room = needed + 256


def metrics() -> Metrics:
    """The engine's counters on this rank, since `init`.

    Returns:
        A dictionary, e.g. `{"tensors": 161, "wait_us": 80123, "waited_for_us": {"3": 70100}, ...}`.
    """
    topology.known()
    found: Metrics = json.loads(_text(_native.lib().hvd_metrics))
    return found


def now() -> Dict[str, Any]:
    """What this rank does at this moment.

    Returns:
        E.g. `{"state": "waiting", "name": "allreduce.conv3", "kind": "ALLREDUCE", "since_s": 1.2,
        "missing": [3], "queue": 4}`. "idle": nothing is outstanding, the script computes. "waiting":
        submitted, but not by all ranks; rank 0 knows which are missing, the first rank of each host those of
        its host. "working": bytes move.
    """
    found: Dict[str, Any] = json.loads(_text(_native.lib().hvd_now))
    return found


def recent() -> List[Dict[str, Any]]:
    """The flight recorder: the last 1,000 collectives of this rank, oldest first."""
    found: List[Dict[str, Any]] = json.loads(_text(_native.lib().hvd_recent))
    return found


def mark(text: str) -> None:
    """Marks this moment in the timeline of this rank.

    Args:
        text: e.g. "epoch 3".
    """
    topology.known()
    raise_for(_native.lib().hvd_mark(text.encode("utf-8", "replace")), _native.last_error())


def step_done() -> None:
    """A step of the training is done: it is counted, timed, and marked in the timeline.

    From the first such mark on, only marks count; before it, steps are inferred from tensors that come back.
    The optimizers and callbacks of the skins call it. Nothing happens where Horovod is not initialised.
    """
    if topology.is_known():
        _native.lib().hvd_mark(None)


def stacks() -> str:
    """The Python stacks of all threads of this process, the main thread's first, innermost call last."""
    frames = sys._current_frames()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    parts = []
    for ident in sorted(frames, key=lambda each: each != main):
        if ident == threading.get_ident() and ident != main:
            continue  # the thread that asks
        stack = "".join(traceback.format_stack(frames[ident])).rstrip()
        parts.append(f'Thread "{names.get(ident, ident)}":\n{stack}')
    return "\n".join(parts)


def snapshot() -> Dict[str, Any]:
    """All of the above but stacks and recorder, with who this is: for those who watch a job."""
    where, world, counters = topology.known(), topology.world(), metrics()
    return {
        "rank": where.rank,
        "size": where.size,
        "host": world.host_names[world.host_of_rank[where.rank]],
        "pid": os.getpid(),
        "generation": world.generation,
        "time": time.time(),
        "steps": counters["steps"],
        "step_s": counters["last_step_us"] * 1e-6,
        "now": now(),
        "metrics": counters,
        "memory_bytes": _resident_bytes(),
    }


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
