# SPDX-License-Identifier: Apache-2.0
"""Who was last, from the clocks of all ranks, where the files do not say it. Pure."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from horovod.runner.report.traces import Operation, Trace, last_of


def blame(traces: Sequence[Trace]) -> None:
    """Fills in last_rank of operations that several ranks recorded, where it is unknown."""
    if len(traces) < 2 or all(op.last_rank >= 0 for trace in traces for op in trace.operations):
        return
    by_name: Dict[str, List[Tuple[Operation, Trace, int]]] = {}
    for trace in traces:
        for at, op in enumerate(trace.operations):
            by_name.setdefault(op.name, []).append((op, trace, at))
    for recorded in by_name.values():
        recorded.sort(key=lambda one: one[0].started)
        for together in _occurrences(recorded):
            last = last_of({trace.rank: op.submitted for op, trace, _ in together})
            for op, trace, at in together:
                if op.last_rank < 0:
                    trace.operations[at] = op._replace(last_rank=last)


def _occurrences(
    recorded: Sequence[Tuple[Operation, Trace, int]],
) -> List[List[Tuple[Operation, Trace, int]]]:
    """A tensor's operations of all ranks, those that are the same one together.

    They start at about the same time everywhere, so the next one begins where a rank comes a second time.
    """
    found: List[List[Tuple[Operation, Trace, int]]] = []
    ranks: set[int] = set()
    for one in recorded:
        if not found or one[1].rank in ranks:
            found.append([])
            ranks = set()
        found[-1].append(one)
        ranks.add(one[1].rank)
    return found
