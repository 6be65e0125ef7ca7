# SPDX-License-Identifier: Apache-2.0
"""From the events of one rank's timeline to its operations.

Reads the files that every rank writes, and those that only rank 0 writes (earlier releases): there, tensors
are "processes", and ticks called "0", "1", ... say when each rank was ready.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from horovod.runner.report.events import Event

KINDS = ("ALLREDUCE", "ALLGATHER", "BROADCAST", "ALLTOALL", "REDUCESCATTER", "ADASUM", "BARRIER", "JOIN")
_NEGOTIATE = "NEGOTIATE_"
_UNKNOWN_RANK = -1
_RANK_STRIDE = 1_000_000  # between the "process" ids of one rank and of the next
# Two ranks that are ready within this time are as good as equal; which of them was last says nothing.
_TIE_US = 20.0


class Operation(NamedTuple):
    """One collective as one rank saw it, in microseconds of rank 0's clock (since the epoch)."""

    name: str
    kind: str
    bytes: int
    submitted: float  # this rank handed it in
    ready: float  # all ranks had
    started: float
    ended: float
    last_rank: int = _UNKNOWN_RANK  # who was ready last
    seq: int = -1  # of its batch

    def on_gpu(self, there: float, began: float, ended: float) -> Operation:
        """The same by what the GPU did: from when its input was there until its result was.

        The host's times say when it was handed on, which may be long before.
        """
        submitted = min(max(self.submitted, there), began)
        ready = min(max(self.ready, submitted), began)
        return self._replace(submitted=submitted, ready=ready, started=began, ended=ended)


class Step(NamedTuple):
    """A step's end, as marked by the script or its optimizer, or as the engine saw it in the tensors."""

    number: int
    time: float
    inferred: bool = False


@dataclasses.dataclass
class Trace:
    """What one rank's file says."""

    rank: int
    size: int  # 0: the file does not say
    host: str
    operations: List[Operation] = dataclasses.field(default_factory=list)
    steps: List[Step] = dataclasses.field(default_factory=list)
    parts: Dict[str, float] = dataclasses.field(default_factory=dict)  # microseconds in PACK, WIRE, ...
    # Ready times of other ranks that this file knows: (rank, its time, all were ready, who was last).
    others: List[Tuple[int, float, float, int]] = dataclasses.field(default_factory=list)
    aligned: bool = True  # times are on rank 0's clock
    dropped: int = 0  # events that did not get into the file
    alone: bool = False  # a file as rank 0 wrote it when it was the only one to write


def read_traces(events: Iterable[Event]) -> List[Trace]:
    """The traces in a file's events: one, or several of a file that was put together; none of other files."""
    whole = _File()
    for event in events:
        try:
            whole.assembler(event).add(event)
        except (AttributeError, TypeError, ValueError, OverflowError):
            pass  # not as we write it, e.g. {"ts": null}: somebody else's event
    return [trace for one in whole.assemblers for trace in [one.finish()] if trace is not None]


class _File:
    """Whose event is it? In files that were put together, all ranks say first who they are, on one clock."""

    def __init__(self) -> None:
        self.assemblers = [_Assembler()]
        self._by_rank: Dict[int, _Assembler] = {}

    def assembler(self, event: Event) -> _Assembler:
        if event.get("name") == "horovod" and event.get("ph") == "M":
            rank = int((event.get("args") or {}).get("rank", 0))
            if not self._by_rank:
                self._by_rank[rank] = self.assemblers[0]
            elif rank not in self._by_rank:
                self._by_rank[rank] = _Assembler()
                self.assemblers.append(self._by_rank[rank])
            for one in self.assemblers:
                one.on_common_clock = len(self.assemblers) > 1
            return self._by_rank[rank]
        if len(self.assemblers) == 1:
            return self.assemblers[0]
        pid = event.get("pid", 0)
        return self._by_rank.get(pid // _RANK_STRIDE if isinstance(pid, int) else 0, self.assemblers[0])


class _Assembler:
    """Turns spans into operations, as they come."""

    def __init__(self) -> None:
        self.on_common_clock = False
        self._trace: Optional[Trace] = None
        self._base = 0.0  # of this file's times
        self._tensors: Dict[Any, str] = {}  # by "process" id, in files of rank 0 alone
        self._open: Dict[Tuple[Any, Any], List[_Open]] = {}  # spans begun, by (pid, tid)
        self._pending: Dict[str, _Pending] = {}  # by tensor
        self._gpu: Dict[int, Tuple[float, float, float]] = {}  # input there, began, ended, by batch

    def add(self, event: Event) -> None:
        phase = event.get("ph")
        if phase == "M":
            self._metadata(event)
        elif self._trace is None:
            return
        elif phase == "X":
            if event.get("dur", 0) == 0 and str(event.get("name", "")).isdigit():
                self._pending_of(event).ticks[int(event["name"])] = self._time(event)
            else:
                self._span(event, self._time(event), float(event.get("dur", 0)))
        elif phase == "B":
            before = self._pending.pop(self._name(event), None) if event.get("name") in KINDS else None
            self._open.setdefault(_row(event), []).append(_Open(event, before))
        elif phase == "E":
            begun = _take(self._open.get(_row(event), []), event)
            if begun is not None:
                self._end(begun, event)
        elif phase == "i":
            self._mark(event)

    def finish(self) -> Optional[Trace]:
        if self._trace is not None:
            for name in list(self._pending):
                self._settle(name)
            self._trace.operations = [
                op.on_gpu(*self._gpu[op.seq]) if op.seq in self._gpu else op for op in self._trace.operations
            ]
            self._trace.operations.sort(key=lambda op: (op.submitted, op.ended))
            steps = [step for step in self._trace.steps if not step.inferred] or self._trace.steps
            self._trace.steps = sorted(steps, key=lambda step: step.time)
        return self._trace

    def _metadata(self, event: Event) -> None:
        args = event.get("args") or {}
        if event.get("name") == "process_name" and "name" in args:
            self._tensors[event.get("pid")] = str(args["name"])
        if "start_time_since_epoch_in_micros" not in args:
            return
        if "rank" in args or self._trace is None:  # the rank's own metadata says more than the old form
            self._base = float(args["start_time_since_epoch_in_micros"]) + float(
                args.get("clock_offset_us", 0)
            )
            self._trace = Trace(
                rank=int(args.get("rank", 0)),
                size=int(args.get("size", 0)),
                host=str(args.get("host", "")),
                aligned="clock_offset_us" in args or int(args.get("rank", 0)) == 0,
                alone="rank" not in args,
            )

    def _time(self, event: Event) -> float:
        return float(event.get("ts", 0)) + (0.0 if self.on_common_clock else self._base)

    def _end(self, begun: _Open, end: Event) -> None:
        begin = begun.event
        args = {**(begin.get("args") or {}), **(end.get("args") or {})}
        whole = {**begin, "args": args}
        duration = max(0.0, self._time(end) - self._time(begin))
        self._span(whole, self._time(begin), duration, begun.pending)

    def _pending_of(self, event: Event) -> _Pending:
        name = self._name(event)
        if name not in self._pending:
            self._pending[name] = _Pending()
        return self._pending[name]

    def _name(self, event: Event) -> str:
        args = event.get("args") or {}
        return str(args.get("tensor") or self._tensors.get(event.get("pid"), "?"))

    def _span(self, event: Event, begin: float, duration: float, before: Optional[_Pending] = None) -> None:
        assert self._trace is not None
        what, args = str(event.get("name", "")), event.get("args") or {}
        if event.get("cat") == "horovod_gpu":
            self._gpu_span(what, args, begin, duration)
        elif what == "QUEUED":
            self._pending_of(event).queued = begin
        elif what.startswith(_NEGOTIATE):
            self._settle(self._name(event))
            pending = self._pending_of(event)
            pending.kind = what[len(_NEGOTIATE) :]
            pending.negotiated = (begin, begin + duration)
            pending.last_rank = int(args.get("last_rank", _UNKNOWN_RANK))
        elif what in KINDS:
            name = self._name(event)
            self._complete(
                name, what, begin, begin + duration, args, before or self._pending.pop(name, _Pending())
            )
        else:
            self._trace.parts[what] = self._trace.parts.get(what, 0.0) + duration

    def _gpu_span(self, what: str, args: Dict[str, Any], begin: float, duration: float) -> None:
        assert self._trace is not None
        if "seq" in args:
            self._gpu[int(args["seq"])] = (begin - float(args.get("input_us", 0)), begin, begin + duration)
        else:
            part = f"GPU {what}"
            self._trace.parts[part] = self._trace.parts.get(part, 0.0) + duration

    def _settle(self, name: str) -> None:
        """Completes what was agreed on, but has no span of its own: joins, barriers."""
        pending = self._pending.get(name)
        if pending is not None and pending.negotiated is not None and pending.kind in ("JOIN", "BARRIER"):
            del self._pending[name]
            self._complete(name, pending.kind, pending.negotiated[1], pending.negotiated[1], {}, pending)

    def _complete(
        self, name: str, kind: str, started: float, ended: float, args: Dict[str, Any], pending: _Pending
    ) -> None:
        assert self._trace is not None
        asked, ready = pending.negotiated or (started, started)
        last = pending.last_rank if pending.last_rank >= 0 else int(args.get("last_rank", _UNKNOWN_RANK))
        if last < 0:
            last = last_of(pending.ticks)
        # On the coordinator, the negotiation begins with whoever is first; its own part is told beside.
        submitted = pending.ticks.get(self._trace.rank, asked) if pending.queued is None else pending.queued
        for rank, time in pending.ticks.items():
            if rank != self._trace.rank:
                self._trace.others.append((rank, time, ready, last))
        nbytes = int(args["bytes"]) if "bytes" in args else _bytes_of(args)
        ready = min(max(submitted, ready), max(started, submitted))
        operation = Operation(
            name, kind, nbytes, submitted, ready, max(started, ready), ended, last, int(args.get("seq", -1))
        )
        self._trace.operations.append(operation._replace(ended=max(ended, operation.started)))

    def _mark(self, event: Event) -> None:
        assert self._trace is not None
        if event.get("name") == "STEP":
            args = event.get("args") or {}
            number = int(args.get("n", len(self._trace.steps) + 1))
            self._trace.steps.append(Step(number, self._time(event), bool(args.get("inferred", False))))
        elif event.get("name") == "DROPPED":
            self._trace.dropped += int((event.get("args") or {}).get("events", 0))


class _Pending:
    """What came before an operation's own span."""

    def __init__(self) -> None:
        self.kind = ""
        self.queued: Optional[float] = None
        self.negotiated: Optional[Tuple[float, float]] = None
        self.last_rank = _UNKNOWN_RANK
        self.ticks: Dict[int, float] = {}


class _Open(NamedTuple):
    """A span that has begun, with what came before it."""

    event: Event
    pending: Optional[_Pending]


def _take(begun: List[_Open], end: Event) -> Optional[_Open]:
    """The span that an event ends: the latest, unless its arguments say that it is of another kind.

    A rank that is ahead may begin the next negotiation of a tensor before this one has ended its operation.
    """
    args = end.get("args") or {}
    for at in range(len(begun) - 1, -1, -1):
        name = str(begun[at].event.get("name", ""))
        if not (
            "dtype" in args and name not in KINDS or "last_rank" in args and not name.startswith(_NEGOTIATE)
        ):
            return begun.pop(at)
    return None


def _row(event: Event) -> Tuple[Any, Any]:
    return event.get("pid"), event.get("tid")


def last_of(ticks: Dict[int, float]) -> int:
    """The rank that was ready last, if that is beyond doubt."""
    if len(ticks) < 2:
        return _UNKNOWN_RANK
    (before, _), (time, rank) = sorted((time, rank) for rank, time in ticks.items())[-2:]
    return rank if time - before > _TIE_US else _UNKNOWN_RANK


_BITS = re.compile(r"(\d+)$")


def _bytes_of(args: Dict[str, Any]) -> int:
    """From {"dtype": "float32", "shape": "[2, 3]"}: 24."""
    count = math.prod(int(one) for one in re.findall(r"\d+", str(args.get("shape", "0"))))
    dtype = str(args.get("dtype", ""))
    bits = _BITS.search(dtype)
    return count * (int(bits[1]) // 8 if bits else int(dtype == "bool"))
