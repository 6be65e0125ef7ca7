# SPDX-License-Identifier: Apache-2.0
"""What was moved together (fusion), and how fast. Pure."""

from __future__ import annotations

import math
from typing import Dict, Iterator, List, NamedTuple, Sequence

from horovod.runner.report.traces import Operation


class Batch(NamedTuple):
    """Operations that were executed as one."""

    kind: str
    bytes: int
    started: float
    ended: float
    names: List[str]

    @property
    def microseconds(self) -> float:
        """How long it took."""
        return self.ended - self.started

    @property
    def bandwidth(self) -> float:
        """Bytes a second; 0 if it took no time that can be measured."""
        return self.bytes / self.microseconds * 1e6 if self.microseconds > 0 else 0.0


class SizeClass(NamedTuple):
    """Batches of similar size."""

    least: int  # bytes, a power of 4
    number: int
    bytes: int
    microseconds: float

    @property
    def bandwidth(self) -> float:
        """Bytes a second of all of them."""
        return self.bytes / self.microseconds * 1e6 if self.microseconds > 0 else 0.0


def batches(operations: Sequence[Operation]) -> List[Batch]:
    """A rank's operations as they were executed; those that took no time are left out."""
    return [_batch(group) for group in grouped([op for op in operations if op.ended > op.started])]


def grouped(operations: Sequence[Operation]) -> Iterator[List[Operation]]:
    """The operations of each batch: what is in one starts before any of it ends."""
    group: List[Operation] = []
    first_end = math.inf
    for op in sorted(operations, key=lambda op: op.started):
        if group and (op.started >= first_end or op.kind != group[0].kind):
            yield group
            group, first_end = [], math.inf
        group.append(op)
        first_end = min(first_end, op.ended)
    if group:
        yield group


def _batch(group: List[Operation]) -> Batch:
    return Batch(
        group[0].kind,
        sum(op.bytes for op in group),
        group[0].started,
        max(op.ended for op in group),
        [op.name for op in group],
    )


def by_size(moved: Sequence[Batch]) -> List[SizeClass]:
    """The batches that have bytes, in classes of sizes, each 4 times as large as the one before."""
    classes: Dict[int, List[Batch]] = {}
    for batch in moved:
        if batch.bytes > 0:
            classes.setdefault(4 ** ((batch.bytes.bit_length() - 1) // 2), []).append(batch)
    return [
        SizeClass(least, len(group), sum(b.bytes for b in group), sum(b.microseconds for b in group))
        for least, group in sorted(classes.items())
    ]
