# SPDX-License-Identifier: Apache-2.0
"""What is known about a running job: snapshots of its ranks, events and lines come in, one view comes out.

Pure: nothing here waits, asks or opens anything, and the time is an argument, so that tests can tell it any
story. Times are seconds since the epoch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Deque, Dict, List, Mapping, Optional, Sequence, Tuple

from horovod.runner.watch.rates import Rates
from horovod.runner.watch.verdicts import ENDED, FAILED, RED, verdicts

# A stack older than this is asked for again while its rank keeps the others waiting.
_STACK_SECONDS = 5.0
_EVENTS, _LINES, _LINE_WIDTH = 300, 400, 2000
Place = Tuple[int, int]  # how many events and lines somebody has seen


@dataclass
class Rank:
    """One worker. Its name is its rank in a static job, e.g. "node7[1]#12" in an elastic one."""

    name: str
    host: str
    number: int = -1  # its rank, once known
    snapshot: Dict[str, Any] = field(default_factory=dict)
    heard: float = 0.0  # when it last reported; 0.0: never
    code: Optional[int] = None  # how it ended
    stack: str = ""  # what it answered when it was asked
    stack_time: float = 0.0
    asked: bool = False  # and has not answered yet
    rates: Rates = field(default_factory=Rates)

    @property
    def doing(self) -> Mapping[str, Any]:
        """What it said it does: {"state": "waiting", "name": "conv1", "missing": [3], ...}."""
        found: Mapping[str, Any] = self.snapshot.get("now") or {}
        return found


class Collector:
    """All that the page, the terminal and Prometheus show.

    Args:
        title: e.g. "python train.py".
        began: when the job was started.
    """

    def __init__(self, title: str, began: float) -> None:
        self._title, self._began = title, began
        self.ranks: Dict[str, Rank] = {}
        self._events: Deque[Dict[str, Any]] = deque(maxlen=_EVENTS)
        self._lines: Deque[Dict[str, Any]] = deque(maxlen=_LINES)
        self._seen: Place = (0, 0)  # how many events and lines there were in all
        self._red: Dict[str, str] = {}
        self._end: Optional[str] = None

    # --------------------------------------------------------------------------------- what happens

    def started(self, name: str, host: str, number: int = -1) -> None:
        """A worker is being started."""
        self.ranks[name] = Rank(name, host, number)

    def renumbered(self, numbers: Mapping[str, int]) -> None:
        """An elastic job has given its workers new ranks; who has ended is not shown any more."""
        self.ranks = {name: rank for name, rank in self.ranks.items() if rank.code is None}
        for name, rank in self.ranks.items():
            rank.number = numbers.get(name, -1)

    def reported(self, name: str, snapshot: Dict[str, Any], now: float) -> None:
        """A worker has sent its snapshot."""
        rank = self.ranks.get(name)
        if rank is None or rank.code is not None:
            return
        rank.snapshot, rank.heard = snapshot, now
        rank.rates.add(snapshot, now)

    def answered(self, name: str, stack: str, now: float) -> None:
        """A worker has sent the stacks it was asked for."""
        rank = self.ranks.get(name)
        if rank is not None:
            rank.stack, rank.stack_time, rank.asked = stack, now, False

    def exited(self, name: str, code: int, now: float) -> None:
        """A worker has ended."""
        rank = self.ranks.get(name)
        if rank is not None:
            rank.code = code
            how = "ended" if code == 0 else f"ended with exit code {code}"
            self.happened("exit", f"{_who(rank)} {how}", now, bad=code != 0)

    def printed(self, label: str, channel: str, lines: Sequence[str]) -> None:
        """A worker has printed lines; label: what stands in front of them, e.g. "3"."""
        for line in lines:
            self._lines.append({"rank": label, "channel": channel, "text": line[:_LINE_WIDTH]})
        self._seen = (self._seen[0], self._seen[1] + len(lines))

    def happened(self, kind: str, text: str, now: float, bad: bool = False) -> None:
        """Something worth telling."""
        self._events.append({"time": now, "kind": kind, "text": text, "bad": bad})
        self._seen = (self._seen[0] + 1, self._seen[1])

    def over(self, error: Optional[str], now: float) -> None:
        """The job has ended, well if there is no error."""
        self._end = error or ""
        self.happened("end", error or "the job has ended well", now, bad=bool(error))

    # ---------------------------------------------------------------------------------- what to do

    def look(self, now: float) -> List[str]:
        """Notices who holds up the job; returns those to ask for their stacks. Needed about once a second."""
        found = verdicts(self.ranks.values(), now)
        wanted = []
        for name, verdict in found.items():
            rank = self.ranks[name]
            before = self._red.pop(name, None)
            if verdict.state in RED:
                self._red[name] = verdict.state
                if before != verdict.state:
                    self.happened(verdict.state, f"{_who(rank)} {verdict.why}", now, bad=True)
                if verdict.state != FAILED and now - rank.stack_time >= _STACK_SECONDS:
                    wanted.append(name)
            elif before is not None and verdict.state != ENDED:
                self.happened("recovered", f"{_who(rank)} goes on", now)
        return [name for name in wanted if not self.ranks[name].asked]

    # ---------------------------------------------------------------------------------- what to show

    def view(self, now: float, seen: Place = (0, 0), metrics: bool = False) -> Dict[str, Any]:
        """Everything, as JSON takes it.

        Args:
            seen: of events and lines, only those after these (the "seen" of an earlier view).
            metrics: with the counters of every rank, too.
        """
        found = verdicts(self.ranks.values(), now)
        rows = [self._row(rank, found[rank.name], now) for rank in self.ranks.values()]
        for row in rows if metrics else ():
            row["metrics"] = self.ranks[row["name"]].snapshot.get("metrics") or {}
        rows.sort(key=lambda row: (row["rank"] < 0, row["rank"], row["name"]))
        live = [row for row in rows if row["state"] not in (ENDED, FAILED)]
        return {
            "title": self._title,
            "began": self._began,
            "now": now,
            "end": self._end,
            "generation": max((row["generation"] for row in rows), default=0),
            "hosts": len({row["host"] for row in live}),
            "totals": _totals(live),
            "ranks": rows,
            "events": _newest(self._events, self._seen[0] - seen[0]),
            "lines": _newest(self._lines, self._seen[1] - seen[1]),
            "seen": self._seen,
        }

    def _row(self, rank: Rank, verdict: Any, now: float) -> Dict[str, Any]:
        doing, shot, rates = rank.doing, rank.snapshot, rank.rates
        row = {
            "name": rank.name,
            "rank": rank.number if rank.number >= 0 else int(shot.get("rank", -1)),
            "host": rank.host,
            "pid": shot.get("pid"),
            "state": verdict.state,
            "bad": verdict.state in RED,
            "why": verdict.why,
            "tensor": doing.get("name") or "",
            "kind": doing.get("kind") or "",
            "missing": list(doing.get("missing") or ()),
            "since": verdict.since,
            "queue": doing.get("queue") or 0,
            "silent": round(now - rank.heard, 1) if rank.heard else None,
            "generation": int(shot.get("generation") or 0),
            "memory": shot.get("memory_bytes") or 0,
            "steps": shot.get("steps") or 0,
            "step_s": rates.step_seconds() or shot.get("step_s") or None,
            "steps_s": rates.per_second("steps"),
            "samples_s": rates.per_second("samples"),
            "bytes_s": rates.per_second("bytes"),
            "ops_s": rates.per_second("ops"),
            "waiting": rates.waiting_share(),
            "history": rates.history(),
            "where": shot.get("where") or "",
            "code": rank.code,
        }
        if row["bad"] or rank.stack:
            row["stack"] = rank.stack or "\n".join(shot.get("stack") or ())
            # One that does not answer cannot say where it is: this is where it was when it last reported.
            is_old = not rank.stack or rank.stack_time < rank.heard - _STACK_SECONDS
            if rank.asked and is_old and shot.get("stack"):
                row["stack"] = "\n".join(shot["stack"])
            row["stack_time"] = rank.heard if rank.asked and is_old else rank.stack_time or rank.heard
        return row


def _totals(rows: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    def values(name: str) -> List[float]:
        return [row[name] for row in rows if row[name] is not None]

    steps, samples, waits = values("steps_s"), values("samples_s"), values("waiting")
    return {
        "ranks": len(rows),
        "bad": sum(1 for row in rows if row["bad"]),
        "step_s": max(values("step_s"), default=None),
        "steps_s": min(steps, default=None),  # as fast as the slowest: all do the same steps
        "samples_s": sum(samples) if samples else None,
        "bytes_s": sum(values("bytes_s")) or None,
        "waiting": sum(waits) / len(waits) if waits else None,
        "memory": sum(row["memory"] for row in rows),
    }


def _newest(kept: Deque[Dict[str, Any]], count: int) -> List[Dict[str, Any]]:
    return list(islice(kept, max(len(kept) - max(count, 0), 0), None))


def _who(rank: Rank) -> str:
    number = rank.number if rank.number >= 0 else int(rank.snapshot.get("rank", -1))
    return f"rank {number} on {rank.host}" if number >= 0 else f"worker {rank.name}"
