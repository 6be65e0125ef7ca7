# SPDX-License-Identifier: Apache-2.0
"""Timeline files of jobs that never ran: what each rank does is given, so what a report must say is known."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Dict, List, Sequence

EPOCH = 1_790_000_000_000_000  # microseconds


@dataclasses.dataclass
class Imagined:
    """A job whose steps are all alike. Times are in microseconds."""

    size: int = 4
    steps: int = 10
    tensors: int = 3
    nbytes: int = 1 << 20
    compute: float = 10_000.0  # before the first tensor of a step
    between: float = 0.0  # from one tensor to the next
    moving: float = 1_000.0  # of each tensor
    late: Dict[int, float] = dataclasses.field(default_factory=dict)  # more before a rank's first tensor
    slow: Dict[int, float] = dataclasses.field(default_factory=dict)  # more between a rank's tensors
    late_in: Dict[int, Dict[int, float]] = dataclasses.field(default_factory=dict)  # {step: {rank: more}}
    skew: Dict[int, float] = dataclasses.field(default_factory=dict)  # how far a rank's clock is ahead
    hosts: Sequence[str] = ("node1",)  # ranks are dealt out to them in blocks
    say_last: bool = True  # files say who was last
    marked: bool = True  # steps are marked
    inferred: bool = False  # by the engine

    def host(self, rank: int) -> str:
        """Where a rank runs."""
        return self.hosts[rank * len(self.hosts) // self.size]

    def events(self) -> List[List[Dict[str, Any]]]:
        """What each rank's file holds."""
        files = [self._head(rank) for rank in range(self.size)]
        free = [0.0] * self.size  # when each rank goes on
        for step in range(self.steps):
            submitted = [self._submissions(step, rank, free[rank]) for rank in range(self.size)]
            done = 0.0
            for tensor in range(self.tensors):
                times = [submitted[rank][tensor] for rank in range(self.size)]
                ready = max(times)
                started = max(ready, done)
                done = started + self.moving
                for rank in range(self.size):
                    files[rank] += self._spans(rank, tensor, times, ready, started)
            free = [done] * self.size
            for rank in range(self.size if self.marked else 0):
                args = {"n": step + 1, **({"inferred": True} if self.inferred else {})}
                files[rank].append({"ph": "i", "name": "STEP", "s": "p", "ts": done, "pid": 0, "args": args})
        return files

    def _submissions(self, step: int, rank: int, since: float) -> List[float]:
        first = since + self.compute + self.late.get(rank, 0.0) + self.late_in.get(step, {}).get(rank, 0.0)
        return [first + tensor * (self.between + self.slow.get(rank, 0.0)) for tensor in range(self.tensors)]

    def _head(self, rank: int) -> List[Dict[str, Any]]:
        start = EPOCH + self.skew.get(rank, 0.0)
        args = {
            "rank": rank, "size": self.size, "host": self.host(rank), "pid": 100 + rank, "version": 2,
            "start_time_since_epoch_in_micros": start, "clock_offset_us": -self.skew.get(rank, 0.0),
        }  # fmt: skip
        return [{"name": "horovod", "ph": "M", "pid": 0, "args": args}]

    def _spans(
        self, rank: int, tensor: int, times: Sequence[float], ready: float, started: float
    ) -> List[Dict[str, Any]]:
        args: Dict[str, Any] = {"tensor": f"grad.{tensor}", "kind": "ALLREDUCE", "bytes": self.nbytes}
        if self.say_last:
            args["last_rank"] = max(range(self.size), key=lambda one: times[one])
        spans = [
            ("QUEUED", times[rank], 0.0),
            ("NEGOTIATE_ALLREDUCE", times[rank], ready - times[rank]),
            ("WIRE", started, self.moving),
            ("ALLREDUCE", started, self.moving),
        ]
        return [
            {"ph": "X", "name": name, "cat": "horovod", "ts": ts, "dur": dur, "tid": tensor, "args": args}
            for name, ts, dur in spans
        ]

    def write(self, folder: str, name: str = "timeline") -> List[str]:
        """Writes timeline.json, timeline.rank1.json, ... and returns their paths."""
        paths = []
        for rank, events in enumerate(self.events()):
            paths.append(os.path.join(folder, f"{name}.rank{rank}.json" if rank else f"{name}.json"))
            with open(paths[-1], "w", encoding="utf-8") as file:
                file.write("[\n" + ",\n".join(map(json.dumps, events)) + "\n]")
        return paths
